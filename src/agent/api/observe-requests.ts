import type { Handler } from '../../lib/http-router.ts';
import type { Metrics } from './metrics.ts';

/** Which door a request came through. */
export type Side = 'local' | 'remote';

/** Methods that get a label of their own; a client can make up any number of others. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'DELETE', 'OPTIONS']);

/**
 * Counts and times every request; routes by their pattern, so that no client decides how many there are.
 *
 * @param metrics where that is kept; may take its time
 */
export function observeRequests(side: Side, metrics: () => Promise<Metrics>): Handler {
  return (req, res, next) => {
    const began = performance.now();
    res.once('close', async () => {
      const seconds = (performance.now() - began) / 1000;
      const method = METHODS.has(req.method) ? req.method : 'OTHER';
      const labels = { side, method, route: req.route?.path ?? 'none' };
      const status = res.writableFinished ? String(res.statusCode) : 'aborted';
      (await metrics()).count(labels, status, seconds);
    });
    next();
  };
}
