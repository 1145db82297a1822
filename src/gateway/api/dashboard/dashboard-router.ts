import type { IncomingMessage } from 'node:http';
import { pipeline } from 'node:stream/promises';
import type { Router } from 'express';
import { z } from 'zod';
import { BoundedMap } from '../../../lib/bounded-map.ts';
import { ApiError, messageOf } from '../../../lib/errors.ts';
import {
  BrowserSessions,
  forgetSession,
  keepSession,
  MAX_SESSIONS,
  sessionIn,
} from '../../../lib/http/browser-sessions.ts';
import { compressJson } from '../../../lib/http/express-app.ts';
import type { OneTimeCodes } from '../../../lib/http/one-time-code.ts';
import { isOwnPage } from '../../../lib/http/origin-check.ts';
import { staticSite } from '../../../lib/http/static-site.ts';
import type { Log } from '../../../lib/log/log.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { AuditFilters } from '../../../management/resources/audit-event.ts';
import { PACKAGED_PAGES } from '../../../packaged.ts';
import { dashboardNotes } from '../../events/activity-log.ts';
import { eventJson } from '../../events/event-json.ts';
import type { AuditFilter } from '../../store/audit-log.ts';
import { COMMAND, keyHolder, SIGN_IN_PURPOSE } from '../../store/command-key.ts';
import type { Activity } from '../../store/events.ts';
import type { Store } from '../../store/store.ts';
import {
  callerRefused,
  type FailedAttempts,
  identify,
  isActiveKey,
  type RefusesAddress,
  refuseSlowly,
} from '../authentication.ts';
import { noQuery } from '../guards.ts';
import type { Handler } from '../handler.ts';
import { jsonObjectBody } from '../json-object-body.ts';
import { strictRouter } from '../operation-router.ts';
import { queryOf, readBody, readFilters, refuse } from '../request.ts';
import { AccessTextRequest, accessChoices, changeAccess } from './access-text.ts';
import type { DashboardFeed } from './dashboard-feed.ts';
import type { DashboardOverview } from './overview.ts';

/** What `GET /dashboard/session` answers. */
export interface DashboardAccess {
  access: 'signed-in' | 'sign-in';
  /** The id of the API key, or `gateway` for one who signed in by a link; null when signed out. */
  holder: string | null;
}

const SignIn = z.union([
  z.strictObject({ api_key: z.string().max(256) }),
  z.strictObject({ code: z.string().max(256) }),
]);

const BODY = { maxBytes: 4096, timeoutMs: 10_000 };
const POLICY_BODY = { maxBytes: 256 * 1024, timeoutMs: 10_000 };

interface DashboardDependencies {
  store: Store;
  sessions: DashboardSessions;
  attempts: FailedAttempts;
  activity: Activity;
  feed: DashboardFeed;
  overview: () => DashboardOverview;
  log: Log;
}

/** Changes as lines of JSON, as destinations of events get them. */
function* auditLines({ auditLog }: Store, filter: AuditFilter): Generator<string> {
  for (const page of auditLog.pages(filter)) yield page.map((row) => `${eventJson(row)}\n`).join('');
}

/** The dashboard's files, sign-in, live feed and overview. All else that it shows comes from the API. */
export function dashboardRouter(dependencies: DashboardDependencies): Router {
  const { store, sessions, attempts, feed, overview, log } = dependencies;
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
  router.get('/dashboard/overview', noQuery, signedIn, compressJson, (_req, res) => {
    res.set('Cache-Control', 'no-store').json(overview());
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
    if (sessions.useCode(code)) return COMMAND;
    return refuse(403, 203, 'link used or expired: create a new one with: device-agent gateway dashboard');
  }
}

/**
 * The sessions of browsers that signed in to the dashboard, each as one API key or as a command on this machine. In memory
 * only: they end when the gateway restarts.
 */
export class DashboardSessions {
  readonly #sessions: BrowserSessions;
  readonly #holders = new BoundedMap<string, string>(MAX_SESSIONS);

  constructor(
    private readonly store: Store,
    private readonly codes: OneTimeCodes,
    private readonly isRefused: RefusesAddress,
    clock: Clock,
  ) {
    this.#sessions = new BrowserSessions({ now: () => clock.now() });
  }

  /**
   * The id of an API key, or {@link COMMAND}; null without an open session. @throws {ApiError} 403 for a page of another
   * site
   */
  holderOf(req: IncomingMessage): string | null {
    const id = sessionIn(req);
    if (id === null) return null;
    const holder = this.#sessions.isOpen(id) ? this.#holderOf(id) : null;
    if (holder === null) {
      this.#end(id);
      return null;
    }
    requireOwnPage(req);
    this.requireAllowed(req);
    return holder;
  }

  /** @throws {ApiError} 403 when an IP restriction refuses the browser's address */
  requireAllowed({ socket }: IncomingMessage): void {
    if (this.isRefused('dashboard', socket)) throw callerRefused(1212, 'dashboard');
  }

  /** A question that may be asked often: whether the session of a request lasts. Asking does not prolong it. */
  lasting(req: IncomingMessage): () => boolean {
    const id = sessionIn(req) ?? '';
    const lasts = this.#sessions.lasting(id);
    return () => lasts() && this.#holderOf(id) !== null && !this.isRefused('dashboard', req.socket);
  }

  /** Whether a one-time code is valid; uses it up. */
  useCode(code: string): boolean {
    return this.codes.use(this.store.box.keyFor(SIGN_IN_PURPOSE), code);
  }

  /** Starts a session under a new identifier. The one of the request ends: somebody else may know it. */
  async start(req: IncomingMessage, holder: string): Promise<string> {
    await this.end(req);
    const id = await this.#sessions.start();
    this.#holders.set(id, holder);
    return id;
  }

  async end(req: IncomingMessage): Promise<void> {
    await this.#end(sessionIn(req) ?? '');
  }

  async endAll(holder: string): Promise<void> {
    const ids = [...this.#holders].filter((entry) => entry[1] === holder).map(([id]) => id);
    for (const id of ids) await this.#end(id);
  }

  #holderOf(id: string): string | null {
    const holder = this.#holders.get(id) ?? null;
    return holder === null || holder === COMMAND || isActiveKey(this.store, holder) ? holder : null;
  }

  async #end(id: string): Promise<void> {
    this.#holders.delete(id);
    await this.#sessions.end(id);
  }
}

/** @throws {ApiError} 403 when a page of another site sent the request */
function requireOwnPage(req: IncomingMessage): void {
  if (!isOwnPage(req)) throw refuse(403, 207, 'cross-site request refused: pages of other sites may not call it');
}
