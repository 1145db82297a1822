import express, { type Express, type RequestHandler, type Router } from 'express';
import { answerUnconditionally, endJsonWithNewline } from '../../lib/http/express-app.ts';
import { isSameOrigin } from '../../lib/http/origin-check.ts';
import type { Log } from '../../lib/log/log.ts';
import { isLoopbackHost } from '../../lib/network/ip-address.ts';
import { AgentError } from '../errors/agent-error.ts';
import type { DeviceHistory } from '../history/device-history.ts';
import type { UpstreamChecks } from '../upstreams/upstream-monitor.ts';
import { errorHandler, noSuchPath } from './agent-routes.ts';
import { bearerAuth, directClient, forwardedClient, TokenGate } from './bearer-auth.ts';
import { healthRouter, livenessRouter } from './health-router.ts';
import type { LazyInspection } from './inspection/lazy-inspection.ts';
import type { DevicePage } from './page/device-page.ts';
import { fixedAccessRouter, sessionAuth, signInRouter } from './page/sign-in-router.ts';
import { type GatewayLinks, shareLinksRouter } from './share-links-router.ts';
import type { HealthSource } from './status-report.ts';
import { TunnelActions } from './tunnel-actions.ts';
import { tunnelsRouter } from './tunnels-router.ts';

export interface AppOptions extends HealthSource {
  page: DevicePage;
  inspection: Pick<LazyInspection, 'router' | 'stop'>;
  shareLinks: GatewayLinks;
  monitor: UpstreamChecks;
  history: Pick<DeviceHistory, 'slots'>;
  log: Log;
}

/**
 * The API and the page for callers on this machine. On loopback they need no token, but only answer to loopback names and
 * not to pages of other sites. On any other address the API requires the token.
 *
 * Every path refuses query parameters it does not know, as the management API does.
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
    tunnelsRouter(new TunnelActions(options.tunnels, options.monitor), options.history),
    shareLinksRouter(options.tunnels, options.shareLinks),
    options.inspection.router,
    healthRouter(options, options.history),
    page.data(),
  );
  app.use(noSuchPath, errorHandler(options.log));
  return app;
}

/** Whether a request came from this machine or through the gateway. */
type Side = 'local' | 'remote';

/** Methods with a label of their own; clients can make up any number of others. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PATCH', 'DELETE', 'OPTIONS']);

/** Counts and times every request. Routes are labelled by their pattern, so that clients cannot add labels. */
function observeRequests(side: Side, metrics: AppOptions['metrics']): RequestHandler {
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

/** Headers that proxies, tunnels and content delivery networks add for the client they forward. */
const FORWARDING = /^(?:forwarded|via|x-forwarded.*|x-real-ip|.*-(?:connecting|client)-ip)$/;

/**
 * Refuses requests that only a browser on another site's page sends: a foreign Host (DNS rebinding) and cross-site
 * requests. Also refuses requests that a proxy or tunnel on this machine forwards: their client is elsewhere, and
 * would get in without a token.
 */
function hostGuard(): RequestHandler {
  return (req, _res, next) => {
    const { host } = req.headers;
    if (host === undefined) throw malformed('the Host header is missing');
    if (req.headersDistinct.host?.length !== 1) throw malformed('there are several Host headers');
    if (!isLoopbackHost(host.replace(/:\d*$/, ''))) {
      throw new AgentError(
        'ERR_AGENT_HOST_NOT_ALLOWED',
        `host not allowed: ${host}; call the local API as 127.0.0.1, [::1] or localhost`,
      );
    }
    const forwarding = Object.keys(req.headers).find((name) => FORWARDING.test(name));
    if (forwarding) {
      throw new AgentError(
        'ERR_AGENT_FORWARDED',
        `forwarded request refused: the local API only answers callers on this machine, and ${forwarding} names ` +
          "another one; set AGENT_DOMAIN and use the token to call the API at the agent's own domain",
      );
    }
    if (!isSameOrigin(req.headers, 'http')) {
      throw new AgentError('ERR_AGENT_CROSS_SITE', 'cross-site request refused: pages of other sites may not call it');
    }
    next();
  };
}

function malformed(problem: string): AgentError {
  return new AgentError('ERR_AGENT_INVALID_REQUEST', `malformed request: ${problem}`);
}
