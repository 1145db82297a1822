import { pathOf } from '../../lib/http-router.ts';
import type { IdSource } from '../../lib/ids.ts';
import type { Log } from '../../lib/log.ts';
import type { Handler } from './router.ts';

/**
 * Gives every request an identifier of its own, which the answer's headers, an error's details and the log share.
 * Only the path is logged: queries and headers may carry what somebody put there by mistake.
 */
export function operation(ids: IdSource, log: Log): Handler {
  return (req, res, next) => {
    const id = ids.next('op');
    const startedAt = performance.now();
    res.operationId = id;
    res.setHeader('Service-Operation-Id', id).setHeader('Ngrok-Operation-Id', id);
    res.on('close', () => {
      const line = {
        operation: id,
        method: req.method,
        path: pathOf(req),
        status: res.statusCode,
        ms: Math.round(performance.now() - startedAt),
        apiKey: res.apiKeyId,
      };
      if (req.method === 'GET') log.debug(line, 'management request');
      else log.info(line, 'management request');
    });
    next();
  };
}
