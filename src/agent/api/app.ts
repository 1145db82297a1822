import express, { type Express, type RequestHandler } from 'express';
import { answerUnconditionally } from '../../lib/http/unconditional-answers.ts';
import type { Log } from '../../lib/log/log.ts';
import { isLoopbackHost } from '../../lib/network/loopback-host.ts';
import { bearerAuth, directClient, forwardedClient } from './bearer-auth.ts';
import { errorHandler, noSuchPath } from './error-handler.ts';
import { type HealthSource, healthRouter, livenessRouter } from './health-router.ts';
import { hostGuard } from './host-guard.ts';
import { observeRequests, type Side } from './observe-requests.ts';
import { openApiRouter } from './openapi-router.ts';
import { tunnelsRouter } from './tunnels-router.ts';

export interface AppOptions extends HealthSource {
  log: Log;
}

/**
 * The API for callers on this machine. On loopback it needs no token, but only answers to loopback names and not to
 * pages of other sites. On any other address it requires the token.
 *
 * Every path refuses query parameters it does not know, as the management API does.
 *
 * @param host the address it listens on
 */
export function createLocalApp(options: AppOptions, host: string, token: () => string): Express {
  if (isLoopbackHost(host)) return createApp(options, 'local', { first: hostGuard() });
  return createApp(options, 'local', { beforeData: bearerAuth({ token, clientOf: directClient }) });
}

/**
 * The same API for callers that arrive through the gateway. Serve it on a socket that only the agent's own endpoint
 * forwards to.
 *
 * @param token what callers must send; null disables authentication
 */
export function createRemoteApp(options: AppOptions, token: (() => string) | null): Express {
  if (token === null) return createApp(options, 'remote', {});
  return createApp(options, 'remote', { beforeData: bearerAuth({ token, clientOf: forwardedClient }) });
}

interface Guards {
  first?: RequestHandler;
  /** Guards everything but `/healthz`. */
  beforeData?: RequestHandler;
}

function createApp(options: AppOptions, side: Side, { first, beforeData }: Guards): Express {
  const app = express();
  app.disable('x-powered-by');
  answerUnconditionally(app);
  app.use(observeRequests(side, options.metrics));
  if (first) app.use(first);
  app.use(livenessRouter());
  if (beforeData) app.use(beforeData);
  app.use(tunnelsRouter(options.tunnels), healthRouter(options), openApiRouter(options.version));
  app.use(noSuchPath, errorHandler(options.log));
  return app;
}
