import express, { type Express } from 'express';
import { type Clock, systemClock } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import { openApiDocument } from '../../management/openapi.ts';
import type { Refusal } from '../../management/resources/refusal.ts';
import type { DomainSettings } from '../domain-names.ts';
import type { Store } from '../store/store.ts';
import type { Tally } from '../tally.ts';
import { requireApiKey } from './authentication.ts';
import type { ApiContext } from './context.ts';
import { errorHandler, notFound } from './error-handler.ts';
import { type FailedAttemptSettings, FailedAttempts } from './failed-attempts.ts';
import { createLinks } from './links.ts';
import type { Live } from './live.ts';
import { GatewayMetrics } from './metrics.ts';
import { operation } from './operation.ts';
import { type RateLimit, rateLimit } from './rate-limit.ts';
import { refuse } from './refuse.ts';
import { type BodyLimits, jsonBody } from './request-body.ts';
import { type Guards, noQuery } from './resource-router.ts';
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
  live: Live;
  tally: Tally;
  log: Log;
  /** Called when a certificate may be wanted, or not wanted any more. */
  wakeProvisioner: () => void;
  /** Why a traffic policy document (JSON or YAML) is refused, or null. */
  checkTrafficPolicy: (document: string) => Refusal | null;
  clock?: Clock;
}

/**
 * The management API as an Express app; the caller serves it.
 *
 * Each route carries its own checks, so that an unknown path is answered 404 before anybody is asked who they are.
 */
export function createManagementApi(dependencies: ManagementApiDependencies, settings: ManagementApiSettings): Express {
  const { clock = systemClock, tally, ...rest } = dependencies;
  const { store, live, log } = rest;
  const { baseUrl, domains, version } = settings;
  const context: ApiContext = { ...rest, links: createLinks(baseUrl), domains };
  const guards = createGuards(store, clock, settings);

  const app = express();
  app.disable('x-powered-by').disable('etag').set('query parser', false);
  app.enable('case sensitive routing').enable('strict routing');
  app.use(operation(store.ids, log));
  const metrics = new GatewayMetrics({ store, live, tally });
  app.use(metrics.observe);
  app.use(onlyKnownMethods);
  if (!store.database.isDurable) app.use(refuseChanges);
  let document: object | null = null;
  app.get('/openapi.json', (_req, res) => {
    // Made when first asked for: on a small device most gateways are never asked.
    document ??= openApiDocument({ baseUrl, version });
    res.json(document);
  });
  app.get('/metrics', ...guards.unversioned, async (_req, res) => {
    const { registry } = metrics;
    res.set('Content-Type', registry.contentType).send(await registry.metrics());
  });
  for (const router of createRouters(context, guards)) app.use(router);
  app.use(notFound);
  app.use(errorHandler(log));
  return app;
}

const METHODS = new Set(['GET', 'POST', 'PATCH', 'PUT', 'DELETE']);

/** Express answers HEAD and OPTIONS by itself where there is a GET; the service does not have them. */
const onlyKnownMethods: express.RequestHandler = (req, res, next) => {
  if (METHODS.has(req.method)) next();
  else notFound(req, res, next);
};

const refuseChanges: express.RequestHandler = (req, _res, next) => {
  if (req.method === 'GET') next();
  else throw refuse(503, 700, "The gateway's disk is read-only: make it writable and restart the gateway.");
};

function createGuards(
  store: Store,
  clock: Clock,
  settings: ManagementApiSettings,
): Guards & { unversioned: express.RequestHandler[] } {
  const attempts = new FailedAttempts(settings.failedAttempts, clock);
  const limit = settings.rateLimit ? [rateLimit(settings.rateLimit, clock)] : [];
  const known = [requireApiKey(store, attempts), ...limit];
  const list = [...known, requireVersion];
  const plain = [...list, noQuery];
  // Prometheus cannot be told to send a header of ours everywhere that it runs.
  return { unversioned: [...known, noQuery], list, plain, withBody: [...plain, jsonBody(settings.body)] };
}
