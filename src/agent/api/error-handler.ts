import type { ErrorRequestHandler, RequestHandler, Response } from 'express';
import { ApiError, errorBody } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { AgentError } from '../errors/agent-error.ts';

/** Answers requests for paths that no router serves. */
export const noSuchPath: RequestHandler = (req) => {
  throw new AgentError('ERR_AGENT_NO_SUCH_PATH', `no such path: ${req.path}`);
};

/** Answers unsupported methods on a known path; `allowed` is the value of the header Allow. */
export function methodNotAllowed(allowed: string): RequestHandler {
  return (req, res) => {
    res.set('Allow', allowed);
    throw new AgentError('ERR_AGENT_METHOD_NOT_ALLOWED', `${req.method} is not supported here; supported: ${allowed}`);
  };
}

/** Turns errors of handlers into answers. */
export function errorHandler(log: Log): ErrorRequestHandler {
  return (error, req, res, _next) => {
    const known = error instanceof ApiError ? error : fromExpress(error);
    if (!known) log.error({ err: error, method: req.method, path: req.path }, 'unexpected error in the API');
    else if (known.status === 500) log.error({ reason: known.message, path: req.path }, 'API request failed');
    if (res.headersSent) return void res.destroy();
    sendError(res, known ?? new AgentError('ERR_AGENT_INTERNAL', 'internal error: see the log of the agent'));
  };
}

/** The one place that answers with an error. */
export function sendError(res: Response, error: ApiError): void {
  if (error.retryAfter !== null) res.set('Retry-After', String(error.retryAfter));
  // What follows of the body is not read.
  if (error.status === 413) res.set('Connection', 'close');
  res.status(error.status).json(errorBody(error));
}

export function bodyTooLarge(maxBytes: number): AgentError {
  return new AgentError('ERR_AGENT_BODY_TOO_LARGE', `the body is larger than ${maxBytes / 1024} KiB`);
}

/** Express and its body parser put a status on errors that are the client's, such as a malformed percent-encoding. */
function fromExpress(error: unknown): AgentError | null {
  if (!(error instanceof Error) || !('status' in error)) return null;
  if (error.status === 413 && 'limit' in error) return bodyTooLarge(Number(error.limit));
  if (error.status !== 400) return null;
  return new AgentError('ERR_AGENT_INVALID_REQUEST', error.message, { cause: error });
}
