import { isUtf8 } from 'node:buffer';
import express, { type RequestHandler } from 'express';
import { checkJson, JsonTextError } from '../../lib/json-text.ts';
import { AgentError } from '../errors/agent-error.ts';
import { bodyTooLarge, sendError } from './error-handler.ts';

/** So much of a body that is too large is still read: a client that is cut off while it sends may miss the answer. */
const MAX_READ = 4 * 1024 * 1024;

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
  cutOffEndlessBody(maxBytes),
  express.json({
    limit: maxBytes,
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
function cutOffEndlessBody(maxBytes: number): RequestHandler {
  return (req, res, next) => {
    let bytes = 0;
    const count = (piece: Buffer) => {
      bytes += piece.length;
      if (bytes <= MAX_READ) return;
      req.off('data', count).pause();
      sendError(res, bodyTooLarge(maxBytes));
    };
    req.on('data', count);
    next();
  };
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
