import express, { type RequestHandler } from 'express';
import { JsonTextError, parseJson } from '../../lib/json-text.ts';
import { AgentError } from '../errors.ts';

const MAX_BYTES = 256 * 1024;

/**
 * Reads a JSON body of at most 256 KiB into `req.body`. Nothing else is accepted: what an HTML form can
 * send, any web site could send here.
 */
export function jsonBody(): [RequestHandler, RequestHandler, RequestHandler] {
  return [requireJson, express.text({ type: 'application/json', limit: MAX_BYTES, inflate: false }), parseBody];
}

const requireJson: RequestHandler = (req, _res, next) => {
  const type = req.headers['content-type'];
  if (type === undefined || !/^application\/json\s*(?:;|$)/i.test(type)) {
    throw new AgentError(
      'ERR_AGENT_UNSUPPORTED_MEDIA_TYPE',
      `send Content-Type: application/json, not ${type ?? 'a body without one'}`,
    );
  }
  next();
};

const parseBody: RequestHandler = (req, _res, next) => {
  try {
    req.body = parseJson(typeof req.body === 'string' ? req.body : '');
  } catch (error) {
    if (!(error instanceof JsonTextError)) throw error;
    throw new AgentError('ERR_AGENT_MALFORMED_JSON', `the body is not JSON; ${error.message}`, {
      details: { [error.place]: error.problem },
      cause: error,
    });
  }
  next();
};
