import type { ErrorRequestHandler, Request, Response } from 'express';
import { ApiError } from '../../lib/errors.ts';
import { answerErrors } from '../../lib/http/error-handler.ts';
import type { Log } from '../../lib/log/log.ts';
import { DatabaseAway, DatabaseBusy, DatabaseUnwritable } from '../store/sql/database-problems.ts';
import { refuse } from './request.ts';

/** Answers 404 to unknown paths and unsupported methods. Clients accept this body without an error code. */
export function notFound(req: Request, res: Response): void {
  res.status(404).json({ status_code: 404, msg: 'Not Found', details: { path: req.path } });
}

export function errorHandlers(log: Log): ErrorRequestHandler[] {
  return [
    (error, req, res, next) => {
      // Express failed to decode a part of the path, for example `%E0%A4`.
      if (error instanceof URIError) notFound(req, res);
      else next(error);
    },
    answerErrors({
      translate: (error) => {
        if (error instanceof DatabaseBusy) return busy(error);
        if (error instanceof DatabaseAway) return away(error);
        return error instanceof DatabaseUnwritable ? unwritable(error) : null;
      },
      log: (error, _known, { method, path }, { locals }) => {
        if (error instanceof ApiError) return;
        log.error({ err: error, operation: locals.operationId, method, path }, 'management request failed');
      },
      internal: () => refuse(500, 700, "internal error; see the gateway's log"),
      details: ({ locals }) => ({ operation_id: locals.operationId }),
    }),
  ];
}

/** Nothing was changed: clients that heed `Retry-After` repeat the request. */
function busy(cause: DatabaseBusy): ApiError {
  return refuse(503, 700, 'database busy: another program is using it; try again', { retryAfter: 1, cause });
}

/** The gateway goes on with what it knows, and asks the shared database twice a second. */
function away(cause: DatabaseAway): ApiError {
  return refuse(503, 700, 'the shared database does not answer; try again', { retryAfter: 5, cause });
}

/** Nothing was changed. A retry succeeds only after the operator has fixed the disk. */
function unwritable(cause: DatabaseUnwritable): ApiError {
  return refuse(503, 700, `nothing was changed: the gateway's ${cause.what}; see the gateway's log`, { cause });
}
