import type { ErrorRequestHandler, Express, Request, Response } from 'express';
import express from 'express';
import { z } from 'zod';
import { ApiError, errorBody } from '../../lib/errors.ts';
import { answerErrors } from '../../lib/http/api-middleware.ts';
import { answerUnconditionally, endJsonWithNewline } from '../../lib/http/express-app.ts';
import { OneTimeCodes } from '../../lib/http/one-time-code.ts';
import type { Log } from '../../lib/log/log.ts';
import { SealRefused } from '../../lib/secrets-box.ts';
import { managementOpenApi } from '../../management/management-openapi.ts';
import type { Condition } from '../conditions/conditions.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { ApiLimits } from '../context/gateway-options.ts';
import { apiHost } from '../endpoints/domain-names.ts';
import type { FleetUpdates } from '../releases/fleet-updates.ts';
import type { PeopleProvider } from '../sign-in/people-provider.ts';
import { DatabaseAway, DatabaseBusy, DatabaseHeld, DatabaseUnwritable } from '../store/sql/database-problems.ts';
import { agentCasRouter } from './agent-cas-router.ts';
import { agentShareLinksRouter } from './agent-share-links-router.ts';
import { agentTimesAwayRouter } from './agent-times-away-router.ts';
import { agentUpdatesRouter } from './agent-updates-router.ts';
import { type ApiContext, createLinks } from './api-context.ts';
import { FailedAttempts, type RefusesAddress, requireApiKey } from './authentication.ts';
import { DashboardFeed } from './dashboard/dashboard-feed.ts';
import { dashboardHistory } from './dashboard/dashboard-history.ts';
import { dashboardRouter } from './dashboard/dashboard-router.ts';
import { DashboardSessions } from './dashboard/dashboard-sessions.ts';
import { dashboardOverview } from './dashboard/overview.ts';
import { DashboardSignIn } from './dashboard/person-sign-in.ts';
import { enrolmentRouter } from './enrolment-router.ts';
import { GatewayMetrics } from './gateway-metrics.ts';
import { createGuards, noQuery } from './guards.ts';
import { type Handler, operation } from './handler.ts';
import { type BodyLimits, jsonObjectBody } from './json-object-body.ts';
import { messagePage } from './message-page.ts';
import { badRequest, readFilters, refuse, requestQuery } from './request.ts';
import { createRouters, unsupportedKinds } from './routes.ts';

export interface ManagementApiSettings extends ApiLimits {
  /** The origin at which clients reach the API, without a path; every `uri` starts with it. */
  baseUrl: string;
  /** Version of this program, for the OpenAPI document. */
  version: string;
}

/** Limits that no well-behaved client reaches. */
export const DEFAULT_LIMITS: ApiLimits = {
  rateLimit: null,
  failedAttempts: { free: 10, windowMs: 60_000, delayMs: 250, maxDelayMs: 5_000 },
  body: { maxBytes: 1024 * 1024, timeoutMs: 30_000 },
};

/** The management API. Each route runs its own checks, so that unknown paths answer 404 before authentication. */
export function createManagementApi(
  dependencies: Omit<ApiContext, 'links'> &
    Pick<GatewayContext, 'counters' | 'activity' | 'clock'> & {
      people: PeopleProvider;
      isRefused: RefusesAddress;
      fleetUpdates: FleetUpdates;
      /** Where approved releases are. */
      dataDir: string;
      conditions: () => Promise<readonly Condition[]>;
      /** How old what is answered may be, as the shared database cannot be asked; null, or left out: it is current. */
      staleSeconds?: () => number | null;
      /** The codes with which browsers sign in. It takes none older than itself, so create it when the gateway starts. */
      signInCodes?: OneTimeCodes;
      /** Prometheus text of one gateway of a cluster, by its address; left out: this one is the only one. */
      metricsOf?: (address: string) => Promise<string>;
    },
  settings: ManagementApiSettings,
): Express {
  const { clock, counters, people, isRefused, activity, conditions, metricsOf, ...others } = dependencies;
  const { signInCodes = new OneTimeCodes(), staleSeconds, fleetUpdates, dataDir, ...rest } = others;
  const { store, live, log } = rest;
  const { baseUrl, version } = settings;
  const { domains } = rest;
  const context: ApiContext = { ...rest, links: createLinks(baseUrl) };
  const attempts = new FailedAttempts(settings.failedAttempts, clock);
  const sessions = new DashboardSessions(store, people, signInCodes, isRefused, clock);
  const keyFor = (purpose: string) => store.box.keyFor(purpose);
  const personSignIn = new DashboardSignIn(people, keyFor, apiHost(domains.baseDomain));
  const guards = createGuards(
    requireApiKey(context, attempts, (req) => sessions.holderOf(req), isRefused),
    clock,
    settings,
  );
  const metrics = new GatewayMetrics({ store, live, counters, conditions, probes: rest.probes ?? null });

  const app = express();
  app.disable('x-powered-by').enable('strict routing').enable('case sensitive routing');
  answerUnconditionally(app);
  endJsonWithNewline(app);
  app.use(operation(store.ids, log), metrics.observe, onlyKnownMethods);
  if (staleSeconds) app.use(tellAge(staleSeconds));
  const changedRows = () => store.database.takeChanges();
  const feed = new DashboardFeed({ live, counters, version, staleSeconds, changedRows, clock });
  const overview = () => dashboardOverview(context, conditions);
  const parts = { store, sessions, personSignIn, people, attempts, activity, feed };
  app.use(dashboardRouter({ ...parts, overview, history: dashboardHistory(context), conditions, live, log }));
  app.use(messagePage(store, { attempts, isRefused }));
  const { unwritable } = store.database;
  if (unwritable !== null) app.use(refuseChanges(unwritable));
  let document: object | null = null;
  app.get('/openapi.json', (_req, res) => {
    // Created on first use: most gateways on small devices never need it.
    document ??= managementOpenApi({ baseUrl, version });
    res.json(document);
  });
  app.get('/metrics', ...guards.unversioned, async (req, res) => {
    const { registry } = metrics;
    const { gateway } = readFilters(MetricsQuery, Object.fromEntries(requestQuery(req)));
    if (gateway !== undefined && !metricsOf) throw badRequest({ code: 231, text: 'gateway: this one is the only one' });
    res.type(registry.contentType).send(await (gateway && metricsOf ? metricsOf(gateway) : registry.metrics()));
  });
  const withBody = [noQuery, jsonObjectBody(KEYLESS_BODY)];
  app.use(enrolmentRouter(context, attempts, clock, withBody));
  const agentRoutes = { attempts, isRefused, clock, withBody };
  app.use(agentShareLinksRouter(context, agentRoutes));
  app.use(agentTimesAwayRouter(context, agentRoutes));
  app.use(agentCasRouter(context, agentRoutes));
  app.use(agentUpdatesRouter({ ...context, fleetUpdates, dataDir }, agentRoutes));
  const unsupported = unsupportedKinds(guards, context.links);
  app.use(...createRouters(context, guards), unsupported, notFound, ...errorHandlers(log));
  return app;
}

/** Whose metrics, by its address; left out: those of the gateway that serves the API, with what is online at all of them. */
const MetricsQuery = z.strictObject({ gateway: z.string().max(300).optional() });

/** Of a request without an API key. */
const KEYLESS_BODY: BodyLimits = { maxBytes: 4096, timeoutMs: 10_000 };

const METHODS = new Set(['GET', 'POST', 'PATCH', 'PUT', 'DELETE']);

/** Answers 404 to HEAD and OPTIONS, which Express would answer on its own. */
const onlyKnownMethods: Handler = (req, res, next) => {
  if (METHODS.has(req.method)) next();
  else notFound(req, res);
};

/** Restarted, the gateway uses the database itself again. */
const refuseChanges =
  ({ what }: DatabaseUnwritable): Handler =>
  (req, _res, next) => {
    if (req.method === 'GET') next();
    else throw refuse(503, 700, `nothing was changed: the gateway's ${what} since its start; mend that and restart it`);
  };

/** RFC 9111, 5.1. */
const tellAge =
  (staleSeconds: () => number | null): Handler =>
  (req, res, next) => {
    const age = req.method === 'GET' ? staleSeconds() : null;
    if (age !== null) res.set('Age', String(age));
    next();
  };

/** Answers 404 to unknown paths and unsupported methods, as ngrok's API does, but with an error code. */
function notFound({ path }: Request, res: Response): void {
  res.status(404).json(errorBody(new ApiError(404, 'ERR_GATEWAY_NO_SUCH_PATH', 'Not Found', { details: { path } })));
}

function errorHandlers(log: Log): ErrorRequestHandler[] {
  return [
    (error, req, res, next) => {
      // Express failed to decode a part of the path, for example `%E0%A4`.
      if (error instanceof URIError) notFound(req, res);
      else next(error);
    },
    answerErrors({
      translate: (error) => {
        if (error instanceof DatabaseBusy) return busy(error);
        if (error instanceof DatabaseAway) return away(error);
        if (error instanceof SealRefused)
          return refuse(503, 700, `nothing was changed: ${error.message}`, { cause: error });
        return error instanceof DatabaseUnwritable ? unwritable(error) : null;
      },
      log: (error, _known, { method, path }, { locals }) => {
        if (error instanceof ApiError) return;
        log.error({ err: error, operation: locals.operationId, method, path }, 'management request failed');
      },
      internal: () => refuse(500, 700, "internal error; see the gateway's log"),
      details: ({ locals }) => ({ operation_id: locals.operationId }),
    }),
  ];
}

/** Nothing was changed: clients that heed `Retry-After` repeat the request. */
function busy(cause: DatabaseBusy): ApiError {
  if (cause instanceof DatabaseHeld) return refuse(503, 700, cause.message, { retryAfter: 10, cause });
  return refuse(503, 700, 'database busy: another program is using it; try again', { retryAfter: 1, cause });
}

/** The gateway goes on with what it knows, and asks the shared database twice a second. */
function away(cause: DatabaseAway): ApiError {
  return refuse(503, 700, 'the shared database does not answer; try again', { retryAfter: 5, cause });
}

/** Nothing was changed. A retry succeeds only after the operator has fixed the disk. */
function unwritable(cause: DatabaseUnwritable): ApiError {
  return refuse(503, 700, `nothing was changed: the gateway's ${cause.what}; see the gateway's log`, { cause });
}
