import type { RequestHandler } from 'express';
import type { Metrics } from './metrics.ts';

/** Whether a request came from this machine or through the gateway. */
export type Side = 'local' | 'remote';

/** Methods with a label of their own; clients can make up any number of others. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PATCH', 'DELETE', 'OPTIONS']);

/**
 * Counts and times every request. Routes are labelled by their pattern, so that clients cannot add labels.
 *
 * @param metrics resolves once the metrics are loaded
 */
export function observeRequests(side: Side, metrics: () => Promise<Metrics>): RequestHandler {
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
