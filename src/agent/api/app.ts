import type { RequestListener, ServerResponse } from 'node:http';
import { type Handler, httpRouter, type RoutedRequest } from '../../lib/http-router.ts';
import type { Log } from '../../lib/log.ts';
import { isLoopbackHost } from '../../lib/loopback-host.ts';
import { bearerAuth, directClient, forwardedClient } from './bearer-auth.ts';
import { errorHandler, noSuchPath } from './error-handler.ts';
import { type HealthSource, healthRouter, livenessRouter } from './health-router.ts';
import { hostGuard } from './host-guard.ts';
import { observeRequests, type Side } from './observe-requests.ts';
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
  first?: Handler;
  /** Stands before everything but `/healthz`. */
  beforeData?: Handler;
}

function createApp(options: AppOptions, side: Side, { first, beforeData }: Guards): RequestListener {
  const router = httpRouter();
  router.use(observeRequests(side, options.metrics));
  if (first) router.use(first);
  router.use(livenessRouter());
  if (beforeData) router.use(beforeData);
  router.use(tunnelsRouter(options.tunnels), healthRouter(options));
  const fail = errorHandler(options.log);
  const answer = (req: RoutedRequest, res: ServerResponse) => {
    router(req, res, (error) => fail(error ?? noSuchPath(req), req, res));
  };
  return (req, res) => answer(req as RoutedRequest, res);
}
