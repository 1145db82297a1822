import { isUtf8 } from 'node:buffer';
import express, { type NextFunction, type Request, type RequestHandler, type Response } from 'express';
import { checkJson, JsonTextError } from '../../lib/json-text.ts';
import { AgentError } from '../errors/agent-error.ts';
import { bodyTooLarge, sendError } from './error-handler.ts';

/** So much of a body that is too large is still read: a client that is cut off while it sends may miss the answer. */
const MAX_READ = 4 * 1024 * 1024;

/**
 * Reads a JSON body of at most 256 KiB into `req.body`. Any other content type is refused: a web page could send it
 * from a form.
 */
export const jsonBody: RequestHandler[] = [
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
  cutOffEndlessBody,
  express.json({
    limit: '256kb',
    type: () => true,
    strict: false,
    verify: (_req, _res, bytes) => checkBody(bytes),
  }),
  (req, _res, next) => {
    if (req.body === undefined) checkBody(Buffer.alloc(0));
    next();
  },
];

/** The parser passes on that a body is too large when it has read all of it, which may never be. */
function cutOffEndlessBody(req: Request, res: Response, next: NextFunction): void {
  let bytes = 0;
  const count = (piece: Buffer) => {
    bytes += piece.length;
    if (bytes <= MAX_READ) return;
    req.off('data', count).pause();
    sendError(res, bodyTooLarge());
  };
  req.on('data', count);
  next();
}

/** Unlike Express, names the place of a syntax error and refuses bytes that are not UTF-8. */
function checkBody(bytes: Buffer): void {
  if (!isUtf8(bytes)) throw new AgentError('ERR_AGENT_MALFORMED_JSON', 'the body is not JSON in UTF-8');
  try {
    checkJson(new TextDecoder().decode(bytes));
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
