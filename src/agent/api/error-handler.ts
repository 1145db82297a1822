import type { ServerResponse } from 'node:http';
import { ApiError, errorBody } from '../../lib/errors.ts';
import { sendJson } from '../../lib/http-answer.ts';
import { type Handler, pathOf, type RoutedRequest } from '../../lib/http-router.ts';
import type { Log } from '../../lib/log.ts';
import { AgentError } from '../errors/agent-error.ts';

/** What is said of every path that no router knows. */
export function noSuchPath(req: RoutedRequest): AgentError {
  return new AgentError('ERR_AGENT_NO_SUCH_PATH', `there is nothing at ${pathOf(req)}`);
}

/**
 * Answers every other method on a known path.
 *
 * @param allowed the methods that there are, as in the header Allow
 */
export function methodNotAllowed(allowed: string): Handler {
  return (req, res) => {
    res.setHeader('Allow', allowed);
    throw new AgentError('ERR_AGENT_METHOD_NOT_ALLOWED', `${req.method} is not possible here; possible: ${allowed}`);
  };
}

/** The one place where an error becomes an answer. */
export function errorHandler(log: Log): (error: unknown, req: RoutedRequest, res: ServerResponse) => void {
  return (error, req, res) => {
    const known = error instanceof ApiError ? error : fromExpress(error);
    if (!known) log.error({ err: error, method: req.method, path: pathOf(req) }, 'unexpected error in the API');
    else if (known.status === 500) log.error({ err: known }, 'a request failed');
    if (res.headersSent) return void res.destroy();
    const answer =
      known ?? new AgentError('ERR_AGENT_INTERNAL', 'an internal error occurred; the log of the agent says more');
    if (answer.retryAfter !== null) res.setHeader('Retry-After', answer.retryAfter);
    // What is left of a refused body is not waited for.
    if (answer.status === 413) res.setHeader('Connection', 'close');
    sendJson(res, errorBody(answer), answer.status);
  };
}

/** Express puts the status on an error that is the client's, such as a bad percent-encoding. */
function fromExpress(error: unknown): AgentError | null {
  if (!(error instanceof Error) || !('status' in error) || error.status !== 400) return null;
  return new AgentError('ERR_AGENT_INVALID_REQUEST', error.message, { cause: error });
}
