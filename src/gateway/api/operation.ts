import type { RequestHandler, Response } from 'express';
import type { IdSource } from '../../lib/ids.ts';
import type { Log } from '../../lib/log.ts';

/**
 * Gives every request an identifier of its own, which the answer's headers, an error's details and the log share.
 * Only the path is logged: queries and headers may carry what somebody put there by mistake.
 */
export function operation(ids: IdSource, log: Log): RequestHandler {
  return (req, res, next) => {
    const id = ids.next('op');
    const startedAt = performance.now();
    res.locals.operationId = id;
    res.set('Service-Operation-Id', id).set('Ngrok-Operation-Id', id);
    res.once('close', () => {
      const line = {
        operation: id,
        method: req.method,
        path: req.path,
        status: res.statusCode,
        ms: Math.round(performance.now() - startedAt),
        apiKey: res.locals.apiKeyId,
      };
      if (req.method === 'GET') log.debug(line, 'management request');
      else log.info(line, 'management request');
    });
    next();
  };
}

/** The identifier of the request that is being answered. */
export function operationIdOf(res: Response): string {
  return String(res.locals.operationId);
}
