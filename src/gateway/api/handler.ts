import type { NextFunction, Request, Response } from 'express';
import type { IdSource } from '../../lib/ids.ts';
import type { Log } from '../../lib/log/log.ts';
import { Repeats } from '../../lib/log/repeats.ts';
import { clientNetwork } from '../../lib/network/ip-address.ts';

interface RequestLocals {
  operationId: string;
  /** Set once the API key has been verified. */
  apiKeyId?: string;
}

type ApiResponse = Response<unknown, RequestLocals>;
export type Handler = (req: Request, res: ApiResponse, next: NextFunction) => unknown;

/** Characters of a path in the log. */
const MAX_PATH = 200;

/**
 * Gives every request an operation id, which the response headers, error details and the log share.
 * Logs only the path: clients may put secrets into the query and headers by mistake. Without an API key, a change is logged once
 * a minute for each client network and status.
 */
export function operation(ids: IdSource, log: Log): Handler {
  const repeats = new Repeats();
  return (req, res, next) => {
    const id = ids.next('op');
    // A closed socket has no address.
    const network = clientNetwork(req.ip ?? '');
    const startedAt = performance.now();
    res.locals.operationId = id;
    res.setHeader('Service-Operation-Id', id).setHeader('Ngrok-Operation-Id', id);
    res.on('close', () => {
      // Without a response, the default status would look like success.
      const status = res.headersSent ? res.statusCode : 'aborted';
      const { apiKeyId } = res.locals;
      const isRead = req.method === 'GET';
      // Anyone may send requests without an API key.
      const times = isRead || apiKeyId !== undefined ? undefined : repeats.timesDue(`${network} ${status}`);
      const line = {
        operation: id,
        method: req.method,
        path: req.path.slice(0, MAX_PATH),
        status,
        duration_ms: Math.round(performance.now() - startedAt),
        api_key: apiKeyId,
        times: times ?? undefined,
      };
      if (isRead || times === null) log.debug(line, 'management request');
      else log.info(line, 'management request');
    });
    next();
  };
}
