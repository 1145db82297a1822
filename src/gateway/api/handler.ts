import type { NextFunction, Request, Response } from 'express';
import type { IdSource } from '../../lib/ids.ts';
import type { Log } from '../../lib/log/log.ts';

/** What the handlers of one request share, in `res.locals`. */
interface RequestLocals {
  operationId: string;
  /** Set once the API key has been verified. */
  apiKeyId?: string;
}

type ApiResponse = Response<unknown, RequestLocals>;
export type Handler = (req: Request, res: ApiResponse, next: NextFunction) => unknown;

/**
 * Gives every request an operation id, which the response headers, error details and the log share.
 * Logs only the path: clients may put secrets into the query and headers by mistake.
 */
export function operation(ids: IdSource, log: Log): Handler {
  return (req, res, next) => {
    const id = ids.next('op');
    const startedAt = performance.now();
    res.locals.operationId = id;
    res.setHeader('Service-Operation-Id', id).setHeader('Ngrok-Operation-Id', id);
    res.on('close', () => {
      const line = {
        operation: id,
        method: req.method,
        path: req.path,
        // Without a response, the default status would look like success.
        status: res.headersSent ? res.statusCode : 'aborted',
        duration_ms: Math.round(performance.now() - startedAt),
        api_key: res.locals.apiKeyId,
      };
      if (req.method === 'GET') log.debug(line, 'management request');
      else log.info(line, 'management request');
    });
    next();
  };
}
