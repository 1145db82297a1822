import type { ErrorRequestHandler, RequestHandler } from 'express';
import { ApiError, errorBody } from '../../lib/errors.ts';
import type { Log } from '../../lib/log.ts';
import { AgentError } from '../errors.ts';

/** Answers every path that no router knows. */
export const noSuchPath: RequestHandler = (req) => {
  throw new AgentError('ERR_AGENT_NO_SUCH_PATH', `there is nothing at ${req.path}`);
};

/**
 * Answers every other method on a known path.
 *
 * @param allowed the methods that there are, as in the header Allow
 */
export function methodNotAllowed(allowed: string): RequestHandler {
  return (req, res) => {
    res.set('Allow', allowed);
    throw new AgentError('ERR_AGENT_METHOD_NOT_ALLOWED', `${req.method} is not possible here; possible: ${allowed}`);
  };
}

/** The one place where an error becomes an answer. */
export function errorHandler(log: Log): ErrorRequestHandler {
  return (error: unknown, req, res, next) => {
    if (res.headersSent) return next(error);
    const known = error instanceof ApiError ? error : fromExpress(error);
    if (!known) log.error({ err: error, method: req.method, path: req.path }, 'unexpected error in the API');
    else if (known.status === 500) log.error({ err: known }, 'a request failed');
    const answer =
      known ?? new AgentError('ERR_AGENT_INTERNAL', 'an internal error occurred; the log of the agent says more');
    if (answer.retryAfter !== null) res.set('Retry-After', String(answer.retryAfter));
    // What is left of a refused body is not waited for.
    if (answer.status === 413) res.set('Connection', 'close');
    res.status(answer.status).json(errorBody(answer));
  };
}

/** Express puts the status on an error that is the client's, such as a bad percent-encoding. */
function fromExpress(error: unknown): AgentError | null {
  if (!(error instanceof Error) || !('status' in error) || error.status !== 400) return null;
  return new AgentError('ERR_AGENT_INVALID_REQUEST', error.message, { cause: error });
}
