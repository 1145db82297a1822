import type { Request, Response } from 'express';
import { ApiError, errorBody } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { DatabaseBusy, DatabaseUnwritable } from '../store/sql/database-problems.ts';
import type { ErrorHandler } from './handler.ts';
import { refuse } from './refuse.ts';

/** Answers 404 to unknown paths and unsupported methods. Clients accept this body without an error code. */
export function notFound(req: Request, res: Response): void {
  res.status(404).json({ status_code: 404, msg: 'Not Found', details: { path: req.path } });
}

/** Turns every error into a response. Unexpected errors are logged, and the response reveals nothing about them. */
export function errorHandler(log: Log): ErrorHandler {
  return (error, req, res, _next) => {
    const operation = res.locals.operationId;
    if (!(error instanceof ApiError) && !isMalformedPath(error)) {
      log.error({ err: error, operation, method: req.method, path: req.path }, 'management request failed');
    }
    if (res.headersSent) return void res.destroy();
    if (isMalformedPath(error)) return notFound(req, res);
    const known = toApiError(error);
    const body = errorBody(known);
    if (known.retryAfter !== null) res.setHeader('Retry-After', known.retryAfter);
    res.status(known.status).json({ ...body, details: { ...body.details, operation_id: operation } });
  };
}

/** Whether Express failed to decode a part of the path, for example `%E0%A4`. */
function isMalformedPath(error: unknown): boolean {
  return error instanceof URIError;
}

function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof DatabaseBusy) return busy(error);
  return error instanceof DatabaseUnwritable ? unwritable(error) : internal();
}

/** Nothing was changed: clients that heed `Retry-After` repeat the request. */
function busy(cause: DatabaseBusy): ApiError {
  return refuse(503, 700, 'database busy: another program is using it; try again', { retryAfter: 1, cause });
}

/** Nothing was changed. A retry succeeds only after the operator has fixed the disk. */
function unwritable(cause: DatabaseUnwritable): ApiError {
  return refuse(503, 700, `nothing was changed: the gateway's ${cause.what}; see the gateway's log`, { cause });
}

function internal(): ApiError {
  return refuse(500, 700, "internal error; see the gateway's log");
}
