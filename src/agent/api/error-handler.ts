import type { ErrorRequestHandler, RequestHandler } from 'express';
import { answerErrors } from '../../lib/http/error-handler.ts';
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
  return answerErrors({
    translate: fromExpress,
    log: (error, known, { method, path }) => {
      if (!known) log.error({ err: error, method, path }, 'unexpected error in the API');
      else if (known.status === 500) log.error({ reason: known.message, path }, 'API request failed');
    },
    internal: () => new AgentError('ERR_AGENT_INTERNAL', 'internal error: see the log of the agent'),
  });
}

/** Express puts a status on errors that are the client's, such as a malformed percent-encoding. */
function fromExpress(error: unknown): AgentError | null {
  if (!(error instanceof Error) || !('status' in error) || error.status !== 400) return null;
  return new AgentError('ERR_AGENT_INVALID_REQUEST', error.message, { cause: error });
}
