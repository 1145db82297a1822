import type { RequestListener } from 'node:http';
import express, {
  type ErrorRequestHandler,
  type Express,
  type Request,
  type RequestHandler,
  type Response,
} from 'express';
import type { Log } from '../../lib/log.ts';
import { AgentError } from '../errors.ts';
import { bearerAuth, directClient, forwardedClient } from './bearer-auth.ts';
import { errorHandler, noSuchPath } from './error-handler.ts';
import { type HealthSource, healthRouter, livenessRouter } from './health-router.ts';
import { hostGuard, isLoopbackHost } from './host-guard.ts';
import type { Side } from './metrics.ts';
import { tunnelsRouter } from './tunnels-router.ts';

export interface AppOptions extends HealthSource {
  log: Log;
}

/**
 * The API for callers on this machine: no token, but only under loopback names and not for other sites' pages.
 * Bound to any other address it demands the token instead.
 *
 * @param host the address that it is served on
 */
export function createLocalApp(options: AppOptions, host: string, token: () => string): RequestListener {
  if (isLoopbackHost(host)) return createApp(options, 'local', { first: hostGuard() });
  return createApp(options, 'local', { beforeData: bearerAuth({ token, clientOf: directClient }) });
}

/**
 * The same API for callers that come through the gateway; to be served on a socket that nothing else leads to.
 *
 * @param token what callers have to know; null lets everyone in
 */
export function createRemoteApp(options: AppOptions, token: (() => string) | null): RequestListener {
  if (token === null) return createApp(options, 'remote', {});
  return createApp(options, 'remote', { beforeData: bearerAuth({ token, clientOf: forwardedClient }) });
}

interface Guards {
  first?: RequestHandler;
  /** Stands before everything but `/healthz`. */
  beforeData?: RequestHandler;
}

function createApp(options: AppOptions, side: Side, { first, beforeData }: Guards): RequestListener {
  const app = express();
  app.disable('x-powered-by').disable('etag');
  app.use(options.metrics.observe(side));
  if (first) app.use(first);
  app.use(livenessRouter());
  if (beforeData) app.use(beforeData);
  const onError = errorHandler(options.log);
  app.use(tunnelsRouter(options.tunnels), healthRouter(options), noSuchPath, onError);
  return withoutPages(app, onError);
}

/**
 * Where not even a path can be made of a URL, such as `http://host@`, Express asks no middleware and answers with a page
 * of its own.
 */
function withoutPages(app: Express, onError: ErrorRequestHandler): RequestListener {
  const handle = (req: Request, res: Response) => {
    const last = (error?: unknown) => {
      const problem = error ?? new AgentError('ERR_AGENT_NO_SUCH_PATH', `there is nothing at ${req.url}`);
      return onError(problem, req, res, () => res.destroy());
    };
    app(req, res, last);
  };
  return (req, res) => handle(req as Request, res as Response);
}
