import express, { type Express, type RequestHandler, type Router } from 'express';
import { endJsonWithNewline } from '../../lib/http/json-with-newline.ts';
import { answerUnconditionally } from '../../lib/http/unconditional-answers.ts';
import type { Log } from '../../lib/log/log.ts';
import { isLoopbackHost } from '../../lib/network/loopback-host.ts';
import type { RefreshUpstreams } from '../upstreams/upstream-monitor.ts';
import { bearerAuth, directClient, forwardedClient, TokenGate } from './bearer-auth.ts';
import { errorHandler, noSuchPath } from './error-handler.ts';
import { healthRouter, livenessRouter } from './health-router.ts';
import { hostGuard } from './host-guard.ts';
import type { LazyInspection } from './inspection/lazy-inspection.ts';
import { observeRequests, type Side } from './observe-requests.ts';
import type { DevicePage } from './page/device-page.ts';
import { fixedAccessRouter, sessionAuth, signInRouter } from './page/sign-in-router.ts';
import type { HealthSource } from './status-report.ts';
import { tunnelsRouter } from './tunnels-router.ts';

export interface AppOptions extends HealthSource {
  page: DevicePage;
  inspection: Pick<LazyInspection, 'router' | 'stop'>;
  /** Checks upstreams that were not checked lately, for those who look at them. */
  refreshUpstreams: RefreshUpstreams;
  log: Log;
}

/**
 * The API and the page for callers on this machine. On loopback they need no token, but only answer to loopback names and
 * not to pages of other sites. On any other address the API requires the token.
 *
 * Every path refuses query parameters it does not know, as the management API does.
 *
 * @param host the address it listens on
 */
export function createLocalApp(options: AppOptions, host: string, token: () => string): Express {
  if (isLoopbackHost(host)) {
    return createApp(options, 'local', { first: hostGuard(), access: fixedAccessRouter('open') });
  }
  // Without TLS, browsers keep no session.
  const beforeData = bearerAuth(new TokenGate({ token, clientOf: directClient }));
  return createApp(options, 'local', { beforeData, access: fixedAccessRouter('insecure') });
}

/**
 * The same for callers that arrive through the gateway. Serve it on a socket that only the agent's own endpoint forwards
 * to.
 *
 * @param token what callers must send; null disables authentication
 */
export function createRemoteApp(options: AppOptions, token: (() => string) | null): Express {
  if (token === null) return createApp(options, 'remote', { access: fixedAccessRouter('open') });
  const { sessions, codes } = options.page;
  const gate = new TokenGate({ token, clientOf: forwardedClient });
  return createApp(options, 'remote', {
    beforeData: sessionAuth(sessions, bearerAuth(gate)),
    access: signInRouter({ gate, sessions, codes }),
  });
}

interface Guards {
  first?: RequestHandler;
  /** Says how the page gets access, and grants it. */
  access: Router;
  /** Guards everything but `/healthz`, the page without data, and `access`. */
  beforeData?: RequestHandler;
}

function createApp(options: AppOptions, side: Side, { first, access, beforeData }: Guards): Express {
  const { page } = options;
  const app = express();
  app.disable('x-powered-by');
  answerUnconditionally(app);
  endJsonWithNewline(app);
  app.use(observeRequests(side, options.metrics));
  if (first) app.use(first);
  app.use(livenessRouter(), page.site(), access);
  if (beforeData) app.use(beforeData);
  app.use(
    tunnelsRouter(options.tunnels, options.refreshUpstreams),
    options.inspection.router,
    healthRouter(options),
    page.data(),
  );
  app.use(noSuchPath, errorHandler(options.log));
  return app;
}
