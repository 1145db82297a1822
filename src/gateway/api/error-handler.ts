import { ApiError, errorBody } from '../../lib/errors.ts';
import { sendJson } from '../../lib/http-answer.ts';
import { pathOf, type RoutedRequest } from '../../lib/http-router.ts';
import type { Log } from '../../lib/log.ts';
import { DatabaseBusy, DatabaseUnwritable } from '../store/database-problems.ts';
import { refuse } from './refuse.ts';
import type { ApiResponse } from './router.ts';

/** Answers paths that lead nowhere, and wrong methods alike; clients accept that such an answer has no code. */
export function notFound(req: RoutedRequest, res: ApiResponse): void {
  sendJson(res, { status_code: 404, msg: 'Not Found', details: { path: pathOf(req) } }, 404);
}

/** The one place where an error becomes an answer; what nobody raised on purpose is logged and reveals nothing. */
export function errorHandler(log: Log): (error: unknown, req: RoutedRequest, res: ApiResponse) => void {
  return (error, req, res) => {
    const operation = res.operationId;
    if (!(error instanceof ApiError) && !isMalformedPath(error)) {
      log.error({ err: error, operation, method: req.method, path: pathOf(req) }, 'a management request failed');
    }
    if (res.headersSent) return void res.destroy();
    if (isMalformedPath(error)) return notFound(req, res);
    const known = asAnswer(error);
    const body = errorBody(known);
    if (known.retryAfter !== null) res.setHeader('Retry-After', known.retryAfter);
    sendJson(res, { ...body, details: { ...body.details, operation_id: operation } }, known.status);
  };
}

/** Express could not decode a part of the path, such as `%E0%A4`. */
function isMalformedPath(error: unknown): boolean {
  return error instanceof URIError;
}

function asAnswer(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof DatabaseBusy) return busy(error);
  return error instanceof DatabaseUnwritable ? unwritable(error) : internal();
}

/** Nothing was done: clients that heed the header repeat the request. */
function busy(cause: DatabaseBusy): ApiError {
  return refuse(503, 700, 'The database is in use by another program; try again.', { retryAfter: 1, cause });
}

/** Nothing was done either, and repeating it helps only once somebody has seen to the disk. */
function unwritable(cause: DatabaseUnwritable): ApiError {
  const what = cause.isFull ? 'is full' : 'cannot be written';
  return refuse(503, 700, `The gateway's disk ${what}: nothing was changed; its log says what to do.`, { cause });
}

function internal(): ApiError {
  return refuse(500, 700, 'Something went wrong on our side; the log of the gateway has the details.');
}
