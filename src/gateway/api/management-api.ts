import type { RequestListener } from 'node:http';
import { type Clock, systemClock } from '../../lib/clock.ts';
import { sendJson, sendText } from '../../lib/http-answer.ts';
import type { RoutedRequest } from '../../lib/http-router.ts';
import type { Log } from '../../lib/log.ts';
import { openApiDocument } from '../../management/openapi.ts';
import type { Refusal } from '../../management/resources/refusal.ts';
import type { DomainSettings } from '../endpoints/domain-names.ts';
import type { LiveView } from '../endpoints/live-view.ts';
import type { TrafficCounters } from '../metrics/traffic-counters.ts';
import type { Store } from '../store/store.ts';
import { requireApiKey } from './authentication.ts';
import type { ApiContext } from './context.ts';
import { errorHandler, notFound } from './error-handler.ts';
import { type FailedAttemptSettings, FailedAttempts } from './failed-attempts.ts';
import { createLinks } from './links.ts';
import { GatewayMetrics } from './metrics.ts';
import { operation } from './operation.ts';
import { type RateLimit, rateLimit } from './rate-limit.ts';
import { refuse } from './refuse.ts';
import { type BodyLimits, jsonBody } from './request-body.ts';
import { type Guards, noQuery } from './resource-router.ts';
import { type ApiResponse, type Handler, strictRouter } from './router.ts';
import { createRouters } from './routers.ts';
import { requireVersion } from './version.ts';

/** Settings of the management API. */
export interface ManagementApiSettings {
  /** Where clients reach it; every `uri` starts with it. An origin, without a path. */
  baseUrl: string;
  /** Version of this program, for the OpenAPI document. */
  version: string;
  domains: DomainSettings;
  /** No limit when null. */
  rateLimit: RateLimit | null;
  failedAttempts: FailedAttemptSettings;
  body: BodyLimits;
}

/** Generous enough for every client that means well. */
export const DEFAULT_LIMITS: Pick<ManagementApiSettings, 'rateLimit' | 'failedAttempts' | 'body'> = {
  rateLimit: null,
  failedAttempts: { free: 10, windowMs: 60_000, delayMs: 250, maxDelayMs: 5_000 },
  body: { maxBytes: 1024 * 1024, timeoutMs: 30_000 },
};

/** What the management API works with. */
export interface ManagementApiDependencies {
  store: Store;
  live: LiveView;
  counters: TrafficCounters;
  log: Log;
  /** Called when a certificate may be wanted, or not wanted any more. */
  wakeProvisioner: () => void;
  /** Why a traffic policy document (JSON or YAML) is refused, or null. */
  checkTrafficPolicy: (document: string) => Refusal | null;
  clock?: Clock;
}

/**
 * The management API; the caller serves it.
 *
 * Each route carries its own checks, so that an unknown path is answered 404 before anybody is asked who they are.
 */
export function createManagementApi(
  dependencies: ManagementApiDependencies,
  settings: ManagementApiSettings,
): RequestListener {
  const { clock = systemClock, counters, ...rest } = dependencies;
  const { store, live, log } = rest;
  const { baseUrl, domains, version } = settings;
  const context: ApiContext = { ...rest, links: createLinks(baseUrl), domains };
  const guards = createGuards(store, clock, settings);

  const router = strictRouter();
  const metrics = new GatewayMetrics({ store, live, counters });
  router.use(operation(store.ids, log), metrics.observe, onlyKnownMethods);
  if (!store.database.isDurable) router.use(refuseChanges);
  let document: object | null = null;
  router.get('/openapi.json', (_req, res) => {
    // Made when first asked for: on a small device most gateways are never asked.
    document ??= openApiDocument({ baseUrl, version });
    sendJson(res, document);
  });
  router.get('/metrics', ...guards.unversioned, async (_req, res) => {
    const { registry } = metrics;
    sendText(res, registry.contentType, await registry.metrics());
  });
  router.use(...createRouters(context, guards));
  const fail = errorHandler(log);
  const answer = (req: RoutedRequest, res: ApiResponse) => {
    router(req, res, (error) => (error ? fail(error, req, res) : notFound(req, res)));
  };
  return (req, res) => answer(req as RoutedRequest, res as ApiResponse);
}

const METHODS = new Set(['GET', 'POST', 'PATCH', 'PUT', 'DELETE']);

/** The router answers OPTIONS by itself, and HEAD where there is a GET; the service does not have them. */
const onlyKnownMethods: Handler = (req, res, next) => {
  if (METHODS.has(req.method)) next();
  else notFound(req, res);
};

const refuseChanges: Handler = (req, _res, next) => {
  if (req.method === 'GET') next();
  else throw refuse(503, 700, "The gateway's disk is read-only: make it writable and restart the gateway.");
};

function createGuards(
  store: Store,
  clock: Clock,
  settings: ManagementApiSettings,
): Guards & { unversioned: Handler[] } {
  const attempts = new FailedAttempts(settings.failedAttempts, clock);
  const limit = settings.rateLimit ? [rateLimit(settings.rateLimit, clock)] : [];
  const known = [requireApiKey(store, attempts), ...limit];
  const list = [...known, requireVersion];
  const plain = [...list, noQuery];
  // Prometheus cannot be told to send a header of ours everywhere that it runs.
  return { unversioned: [...known, noQuery], list, plain, withBody: [...plain, jsonBody(settings.body)] };
}
