import { isUtf8 } from 'node:buffer';
import { messageOf } from '../../lib/errors.ts';
import type { Handler, RoutedRequest } from '../../lib/http-router.ts';
import { JsonTextError, parseJson } from '../../lib/json-text.ts';
import { AgentError } from '../errors/agent-error.ts';

const MAX_BYTES = 256 * 1024;
/** So much of a body that is too large is still read: a client that is cut off while it sends may not see the answer. */
const MAX_READ = 4 * 1024 * 1024;

/**
 * Reads a JSON body of at most 256 KiB into `req.body`. Nothing else is accepted: what an HTML form can
 * send, any web site could send here.
 */
export function jsonBody(): [Handler, Handler] {
  return [requireJson, readBody];
}

const requireJson: Handler = (req, _res, next) => {
  const { 'content-type': type, 'content-encoding': encoding = 'identity' } = req.headers;
  if (type === undefined || !/^application\/json\s*(?:;|$)/i.test(type)) {
    throw unsupported(`send Content-Type: application/json, not ${type ?? 'a body without one'}`);
  }
  if (!/^utf-?8$/i.test(/;\s*charset="?([^";\s]*)/i.exec(type)?.[1] ?? 'utf-8'))
    throw unsupported('send JSON in UTF-8');
  if (encoding.toLowerCase() !== 'identity') throw unsupported(`send the body as it is, without ${encoding}`);
  next();
};

const readBody: Handler = async (req, _res, next) => {
  const bytes = await received(req);
  if (!isUtf8(bytes)) throw new AgentError('ERR_AGENT_MALFORMED_JSON', 'the body is not JSON in UTF-8');
  try {
    req.body = parseJson(new TextDecoder().decode(bytes));
  } catch (error) {
    if (!(error instanceof JsonTextError)) throw error;
    throw new AgentError('ERR_AGENT_MALFORMED_JSON', `the body is not JSON; ${error.message}`, {
      details: { [error.place]: error.problem },
      cause: error,
    });
  }
  next();
};

/** Express's own parser reads a body that is too large to its end, if it has one, before it says so. */
async function received(req: RoutedRequest): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let size = 0;
  try {
    for await (const piece of req.iterator({ destroyOnReturn: false })) {
      size += piece.length;
      if (size <= MAX_BYTES) pieces.push(piece);
      if (size > MAX_READ) break;
    }
  } catch (error) {
    const problem = `the body did not arrive: ${messageOf(error)}`;
    throw new AgentError('ERR_AGENT_INVALID_REQUEST', problem, { cause: error });
  }
  if (size <= MAX_BYTES) return Buffer.concat(pieces);
  throw new AgentError('ERR_AGENT_BODY_TOO_LARGE', `the body is larger than ${MAX_BYTES / 1024} KiB`);
}

function unsupported(problem: string): AgentError {
  return new AgentError('ERR_AGENT_UNSUPPORTED_MEDIA_TYPE', problem);
}
