import { pipeline } from 'node:stream/promises';
import type { Request, Response, Router } from 'express';
import { z } from 'zod';
import { ApiError, messageOf } from '../../../lib/errors.ts';
import { forgetSession, keepSession } from '../../../lib/http/browser-sessions.ts';
import { compressJson } from '../../../lib/http/express-app.ts';
import { NOTICE_POLICY, noticePage, type PageNotice } from '../../../lib/http/notice-page.ts';
import { staticSite } from '../../../lib/http/static-site.ts';
import type { Log } from '../../../lib/log/log.ts';
import { AuditFilters } from '../../../management/resources/audit-event.ts';
import { people as peopleResource } from '../../../management/resources/person.ts';
import { PACKAGED_PAGES, VERSION } from '../../../packaged.ts';
import { SignInFailed } from '../../../traffic-policy/sign-in/identity-provider.ts';
import { type Condition, shownCondition } from '../../conditions/conditions.ts';
import type { LiveView } from '../../endpoints/live-view.ts';
import { noteDashboardRefusal } from '../../events/activity-log.ts';
import { actorDescriptions, eventJson } from '../../events/shown-events.ts';
import { endSignIns } from '../../sign-in/manage-sign-ins.ts';
import type { PeopleProvider } from '../../sign-in/people-provider.ts';
import type { AuditFilter } from '../../store/audit-log.ts';
import { COMMAND, keyHolder } from '../../store/command-access.ts';
import type { Activity } from '../../store/events.ts';
import type { Caller } from '../../store/sql/database.ts';
import type { Store } from '../../store/store.ts';
import { type FailedAttempts, identify, refuseSlowly } from '../authentication.ts';
import { noQuery } from '../guards.ts';
import type { Handler } from '../handler.ts';
import { jsonObjectBody } from '../json-object-body.ts';
import { strictRouter } from '../operation-router.ts';
import { readBody, readFilters, readQuery, refuse, requestQuery } from '../request.ts';
import { AccessTextRequest, accessChoices, changeAccess } from './access-text.ts';
import type { DashboardFeed } from './dashboard-feed.ts';
import { type dashboardHistory, HistoryEventsQuery, LastDaysQuery } from './dashboard-history.ts';
import { type DashboardSessions, type Holder, requireOwnPage } from './dashboard-sessions.ts';
import type { DashboardOverview } from './overview.ts';
import { CALLBACK, type DashboardSignIn } from './person-sign-in.ts';

export interface DashboardAccess {
  access: 'signed-in' | 'sign-in';
  /** The id of the API key or person, or `gateway` for one who signed in by a link; null when signed out. */
  holder: string | null;
  /** What the API key or person is called; null: nothing. */
  name: string | null;
  /** Whether people of the gateway may sign in. */
  hasPeople: boolean;
}

/** Answer to a browser whose person wants to sign in. */
export interface SignInPlace {
  /** Of the gateway's page for sign-in, which leads back. */
  url: string;
}

/** Answer to a command that asks for what is wrong. */
export interface PresentConditions {
  conditions: readonly Omit<Condition, 'subjects'>[];
  /** Of the program. */
  version: string;
  /** How many sessions agents have, here and at other gateways. */
  sessions: number;
}

const SignIn = z.union([
  z.strictObject({ api_key: z.string().max(256) }),
  z.strictObject({ code: z.string().max(256) }),
]);

/** Where in the dashboard to go on. */
const PersonSignInRequest = z.strictObject({ view: z.string().regex(/^(?:#\/[\w./?=&%-]{0,500})?$/) });

const Code = z.strictObject({ code: z.string().max(256) });

const BODY = { maxBytes: 4096, timeoutMs: 10_000 };
const POLICY_BODY = { maxBytes: 256 * 1024, timeoutMs: 10_000 };

/** Changes as lines of JSON, as destinations of events get them. */
function* auditLines({ auditLog }: Store, filter: AuditFilter): Generator<string> {
  for (const page of auditLog.pages(filter)) yield page.map((row) => `${eventJson(row)}\n`).join('');
}

/** The dashboard's files, sign-in, live feed, overview and parts of histories. All else that it shows comes from the API. */
export function dashboardRouter(dependencies: {
  store: Store;
  sessions: DashboardSessions;
  personSignIn: DashboardSignIn;
  people: Pick<PeopleProvider, 'issuer'>;
  attempts: FailedAttempts;
  activity: Activity;
  feed: DashboardFeed;
  overview: () => Promise<DashboardOverview>;
  history: ReturnType<typeof dashboardHistory>;
  conditions: () => Promise<readonly Condition[]>;
  live: Pick<LiveView, 'sessions'>;
  log: Log;
}): Router {
  const { store, sessions, personSignIn, people, attempts, feed, overview, history, conditions, live, log } =
    dependencies;
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
    const answer: DashboardAccess = {
      access: holder === null ? 'sign-in' : 'signed-in',
      holder,
      name: holder && actorDescriptions(store)(holder),
      hasPeople: store.people.hasOperators,
    };
    res.set('Cache-Control', 'no-store').json(answer);
  });
  router.post('/dashboard/session', noQuery, ownPage, jsonObjectBody(BODY), async (req, res) => {
    const proof = readBody(SignIn, 'POST', req.body);
    const holder = 'code' in proof ? byCode(proof.code) : byKey(proof.api_key);
    if (holder instanceof ApiError) {
      noteDashboardRefusal(dependencies.activity, req.ip, holder);
      return refuseSlowly(attempts, holder, req.ip);
    }
    requireAllowed(req);
    await enter(req, res, holder);
    res.status(204).end();
  });
  router.post('/dashboard/sign-in', noQuery, ownPage, jsonObjectBody(BODY), (req, res) => {
    const { view } = readBody(PersonSignInRequest, 'POST', req.body);
    requireAllowed(req);
    const answer: SignInPlace = { url: personSignIn.begin(req, res, view) };
    res.set('Cache-Control', 'no-store').json(answer);
  });
  // The page for sign-in is another origin: what counts is that this browser has begun the sign-in.
  router.get(CALLBACK, async (req, res) => {
    res.set(PAGE_HEADERS);
    try {
      requireAllowed(req);
      const { holder, view } = personSignIn.finish(req, res);
      await enter(req, res, holder);
      res.redirect(303, `/${view}`);
    } catch (error) {
      if (!(error instanceof SignInFailed)) throw error;
      noteDashboardRefusal(dependencies.activity, req.ip, error);
      await attempts.slowDown(req.ip ?? '');
      res
        .status(error.status)
        .type('html')
        .send(noticePage(notSignedIn(error)));
    }
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
    if (isPerson(holder)) {
      const end = () => endSignIns(store, { issuer: people.issuer, subject: holder });
      await store.database.write(end, callerOf(holder, req));
    }
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
  router.get('/dashboard/last-days', signedIn, compressJson, async (req, res) => {
    const { ids } = readQuery(LastDaysQuery, requestQuery(req));
    res.set('Cache-Control', 'no-store').json(await history.lastDays(ids));
  });
  router.get('/dashboard/history-events', signedIn, compressJson, (req, res) => {
    res.set('Cache-Control', 'no-store').json(history.events(readQuery(HistoryEventsQuery, requestQuery(req))));
  });
  // For a command on this machine. An API key would have to be written first, which a full disk prevents.
  router.post('/dashboard/conditions', noQuery, jsonObjectBody(BODY), async (req, res) => {
    const refusal = usedUp(readBody(Code, 'POST', req.body).code);
    if (refusal !== null) return refuseSlowly(attempts, refusal, req.ip);
    const answer: PresentConditions = {
      conditions: (await conditions()).map(shownCondition),
      version: VERSION,
      sessions: live.sessions().length,
    };
    res.set('Cache-Control', 'no-store').json(answer);
  });
  router.get('/dashboard/audit-log.jsonl', signedIn, async (req, res) => {
    const filter = readFilters(AuditFilters, Object.fromEntries(requestQuery(req)));
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

  /** @throws {ApiError} 403 when an IP restriction refuses the browser's address */
  function requireAllowed(req: Request): void {
    try {
      sessions.requireAllowed(req);
    } catch (error) {
      if (error instanceof ApiError) noteDashboardRefusal(dependencies.activity, req.ip, error);
      throw error;
    }
  }

  /** Nobody stays out because the database cannot be written. */
  async function enter(req: Request, res: Response, holder: Holder): Promise<void> {
    keepSession(res, await sessions.start(req, holder));
    const { database } = store;
    const { id } = holder;
    const note = () => database.noteChange({ table: 'dashboard_sessions', before: null, after: { id } });
    await database.write(note, callerOf(id, req)).catch((error: unknown) => {
      log.warn({ by: id, reason: messageOf(error) }, 'sign-in to the dashboard not recorded');
    });
  }

  function callerOf(id: string, { ip }: Request): Caller {
    return { by: keyHolder(store, id), from: ip ?? null, isOperator: true };
  }

  function byKey(apiKey: string): Holder | ApiError {
    const key = identify(store, `Bearer ${apiKey}`);
    return typeof key === 'string' ? { id: key } : key;
  }

  function byCode(code: string): Holder | ApiError {
    const holder = sessions.useCode(code);
    if (holder === null) return refusedCode();
    if (sessions.mayStay(holder)) return holder;
    return new ApiError(
      403,
      'ERR_GATEWAY_NOT_ADMITTED',
      'the person of this link may not use the dashboard, or was signed out',
    );
  }

  /** @returns why a one-time code of a command is refused; null: it was valid */
  function usedUp(code: string): ApiError | null {
    return sessions.useCode(code)?.id === COMMAND ? null : refusedCode();
  }
}

function refusedCode(): ApiError {
  return refuse(403, 203, 'link used or expired: create a new one with: device-agent gateway dashboard');
}

function isPerson(holder: string): boolean {
  return holder.startsWith(peopleResource.idPrefix);
}

const PAGE_HEADERS = {
  ...Object.fromEntries([NOTICE_POLICY]),
  'Cache-Control': 'no-store',
  'Referrer-Policy': 'no-referrer',
};

function notSignedIn({ code, message }: SignInFailed): PageNotice {
  return { title: 'Not signed in', text: message, detail: code, link: { href: '/', text: 'Back to the dashboard' } };
}
