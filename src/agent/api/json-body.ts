import { isUtf8 } from 'node:buffer';
import type { RequestHandler } from 'express';
import { messageOf } from '../../lib/errors.ts';
import { bodyParser } from '../../lib/http/body-parser.ts';
import { JsonTextError, parseJson } from '../../lib/json-text.ts';
import { AgentError } from '../errors/agent-error.ts';

const MAX_BODY = 256 * 1024;

/**
 * Reads a JSON body into `req.body`. Any other content type is refused: a web page could send it from a form.
 *
 * @param maxBytes of the body; 256 KiB by default
 */
export const jsonBody = (maxBytes = MAX_BODY): RequestHandler[] => [
  (req, _res, next) => {
    const { 'content-type': type, 'content-encoding': encoding = 'identity' } = req.headers;
    if (type === undefined || !/^application\/json[ \t]*(?:;|$)/i.test(type)) {
      throw unsupported(`send Content-Type: application/json, not ${type ?? 'a body without a content type'}`);
    }
    if (!/^utf-?8$/i.test(/;\s*charset="?([^";\s]*)/i.exec(type)?.[1] ?? 'utf-8')) {
      throw unsupported('send JSON in UTF-8');
    }
    if (encoding.toLowerCase() !== 'identity') throw unsupported(`send the body uncompressed, without ${encoding}`);
    next();
  },
  bodyParser({
    maxBytes,
    parse: parseBody,
    unreadable: (problem, cause) =>
      problem === 'too large'
        ? new AgentError('ERR_AGENT_BODY_TOO_LARGE', `the body is larger than ${maxBytes / 1024} KiB`)
        : new AgentError('ERR_AGENT_INVALID_REQUEST', messageOf(cause), { cause }),
  }),
];

/** Unlike Express, names the place of a syntax error and refuses bytes that are not UTF-8. */
function parseBody(bytes: Buffer): unknown {
  if (!isUtf8(bytes)) throw new AgentError('ERR_AGENT_MALFORMED_JSON', 'the body is not JSON in UTF-8');
  try {
    return parseJson(new TextDecoder().decode(bytes));
  } catch (error) {
    if (!(error instanceof JsonTextError)) throw error;
    throw new AgentError('ERR_AGENT_MALFORMED_JSON', `the body is not JSON: ${error.message}`, {
      details: { [error.place]: error.problem },
      cause: error,
    });
  }
}

function unsupported(problem: string): AgentError {
  return new AgentError('ERR_AGENT_UNSUPPORTED_MEDIA_TYPE', problem);
}
