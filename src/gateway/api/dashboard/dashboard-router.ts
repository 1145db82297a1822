import { pipeline } from 'node:stream/promises';
import type { Router } from 'express';
import { z } from 'zod';
import { ApiError, messageOf } from '../../../lib/errors.ts';
import { forgetSession, keepSession } from '../../../lib/http/browser-sessions.ts';
import { compressJson } from '../../../lib/http/express-app.ts';
import { staticSite } from '../../../lib/http/static-site.ts';
import type { Log } from '../../../lib/log/log.ts';
import { AuditFilters } from '../../../management/resources/audit-event.ts';
import { PACKAGED_PAGES } from '../../../packaged.ts';
import type { Condition } from '../../conditions/conditions.ts';
import { dashboardNotes } from '../../events/activity-log.ts';
import { eventJson } from '../../events/event-json.ts';
import type { AuditFilter } from '../../store/audit-log.ts';
import { COMMAND, keyHolder } from '../../store/command-key.ts';
import type { Activity } from '../../store/events.ts';
import type { Store } from '../../store/store.ts';
import { type FailedAttempts, identify, refuseSlowly } from '../authentication.ts';
import { noQuery } from '../guards.ts';
import type { Handler } from '../handler.ts';
import { jsonObjectBody } from '../json-object-body.ts';
import { strictRouter } from '../operation-router.ts';
import { queryOf, readBody, readFilters, refuse } from '../request.ts';
import { AccessTextRequest, accessChoices, changeAccess } from './access-text.ts';
import type { DashboardFeed } from './dashboard-feed.ts';
import { type DashboardSessions, requireOwnPage } from './dashboard-sessions.ts';
import type { DashboardOverview } from './overview.ts';

export interface DashboardAccess {
  access: 'signed-in' | 'sign-in';
  /** The id of the API key, or `gateway` for one who signed in by a link; null when signed out. */
  holder: string | null;
}

/** Answer to a command that asks for what is wrong. */
export interface PresentConditions {
  conditions: readonly Condition[];
}

const SignIn = z.union([
  z.strictObject({ api_key: z.string().max(256) }),
  z.strictObject({ code: z.string().max(256) }),
]);

const Code = z.strictObject({ code: z.string().max(256) });

const BODY = { maxBytes: 4096, timeoutMs: 10_000 };
const POLICY_BODY = { maxBytes: 256 * 1024, timeoutMs: 10_000 };

interface DashboardDependencies {
  store: Store;
  sessions: DashboardSessions;
  attempts: FailedAttempts;
  activity: Activity;
  feed: DashboardFeed;
  overview: () => Promise<DashboardOverview>;
  conditions: () => Promise<readonly Condition[]>;
  log: Log;
}

/** Changes as lines of JSON, as destinations of events get them. */
function* auditLines({ auditLog }: Store, filter: AuditFilter): Generator<string> {
  for (const page of auditLog.pages(filter)) yield page.map((row) => `${eventJson(row)}\n`).join('');
}

/** The dashboard's files, sign-in, live feed and overview. All else that it shows comes from the API. */
export function dashboardRouter(dependencies: DashboardDependencies): Router {
  const { store, sessions, attempts, feed, overview, conditions, log } = dependencies;
  const noteFailed = dashboardNotes(dependencies.activity);
  const ownPage: Handler = (req, _res, next) => {
    requireOwnPage(req);
    next();
  };
  const signedIn: Handler = (req, _res, next) => {
    if (sessions.holderOf(req) === null) throw refuse(403, 200, 'not signed in');
    next();
  };
  const router = strictRouter();
  router.use(staticSite(PACKAGED_PAGES, 'gateway'));
  router.get('/dashboard/session', noQuery, (req, res) => {
    const holder = sessions.holderOf(req);
    const answer: DashboardAccess = { access: holder === null ? 'sign-in' : 'signed-in', holder };
    res.set('Cache-Control', 'no-store').json(answer);
  });
  router.post('/dashboard/session', noQuery, ownPage, jsonObjectBody(BODY), async (req, res) => {
    const proof = readBody(SignIn, 'POST', req.body);
    const holder = 'code' in proof ? byCode(proof.code) : identify(store, `Bearer ${proof.api_key}`);
    if (typeof holder !== 'string') {
      noteFailed(req.ip, holder);
      return refuseSlowly(attempts, holder, req.ip);
    }
    try {
      sessions.requireAllowed(req);
    } catch (error) {
      if (error instanceof ApiError) noteFailed(req.ip, error);
      throw error;
    }
    keepSession(res, await sessions.start(req, holder));
    await record(holder, req.ip);
    res.status(204).end();
  });
  router.delete('/dashboard/session', noQuery, ownPage, async (req, res) => {
    await sessions.end(req);
    forgetSession(res);
    res.status(204).end();
  });
  router.delete('/dashboard/sessions', noQuery, ownPage, async (req, res) => {
    const holder = sessions.holderOf(req);
    if (holder === null) throw refuse(403, 200, 'not signed in');
    await sessions.endAll(holder);
    forgetSession(res);
    res.status(204).end();
  });
  router.get('/dashboard/access', noQuery, signedIn, (_req, res) => {
    res.json(accessChoices());
  });
  router.post('/dashboard/access', noQuery, signedIn, ownPage, jsonObjectBody(POLICY_BODY), (req, res) => {
    res.set('Cache-Control', 'no-store').json(changeAccess(readBody(AccessTextRequest, 'POST', req.body)));
  });
  router.get('/dashboard/overview', noQuery, signedIn, compressJson, async (_req, res) => {
    res.set('Cache-Control', 'no-store').json(await overview());
  });
  // For a command on this machine. An API key would have to be written first, which a full disk prevents.
  router.post('/dashboard/conditions', noQuery, jsonObjectBody(BODY), async (req, res) => {
    const refusal = usedUp(readBody(Code, 'POST', req.body).code);
    if (refusal !== null) return refuseSlowly(attempts, refusal, req.ip);
    const answer: PresentConditions = { conditions: await conditions() };
    res.set('Cache-Control', 'no-store').json(answer);
  });
  router.get('/dashboard/audit-log.jsonl', signedIn, async (req, res) => {
    const filter = readFilters(AuditFilters, Object.fromEntries(queryOf(req)));
    const name = 'attachment; filename="audit-log.jsonl"';
    res.set({ 'Content-Type': 'application/jsonl', 'Content-Disposition': name, 'Cache-Control': 'no-store' });
    await pipeline(auditLines(store, filter), res).catch((error: NodeJS.ErrnoException) => {
      // A browser that has left needs no answer.
      if (error.code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
    });
  });
  router.get('/dashboard/events', noQuery, signedIn, (req, res) => {
    feed.open(res, sessions.lasting(req));
  });
  return router;

  /** Nobody stays out because the database cannot be written. */
  async function record(id: string, from: string | undefined): Promise<void> {
    const { database } = store;
    const note = () => database.noteChange({ table: 'dashboard_sessions', before: null, after: { id } });
    const written = database.write(note, { by: keyHolder(store, id), from: from ?? null });
    await written.catch((error: unknown) => {
      log.warn({ by: id, reason: messageOf(error) }, 'sign-in to the dashboard not recorded');
    });
  }

  function byCode(code: string) {
    return usedUp(code) ?? COMMAND;
  }

  /** @returns why a one-time code is refused; null: it was valid */
  function usedUp(code: string): ApiError | null {
    if (sessions.useCode(code)) return null;
    return refuse(403, 203, 'link used or expired: create a new one with: device-agent gateway dashboard');
  }
}
