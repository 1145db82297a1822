import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import express, {
  type ErrorRequestHandler,
  type Express,
  type Request,
  type RequestHandler,
  type Response,
} from 'express';
import { ApiError } from '../../../lib/errors.ts';
import { type BodyProblem, bodyParser } from '../../../lib/http/api-middleware.ts';
import { answerUnconditionally } from '../../../lib/http/express-app.ts';
import { noticePage, type PageNotice } from '../../../lib/http/notice-page.ts';
import { isOwnPage } from '../../../lib/http/origin-check.ts';
import type { Log } from '../../../lib/log/log.ts';
import { clientNetwork } from '../../../lib/network/ip-address.ts';
import { systemClock } from '../../../lib/time/clock.ts';
import { RequestRate } from '../../../lib/time/token-bucket.ts';
import { PACKAGED_PAGES } from '../../../packaged.ts';
import type { SignedInPerson } from '../../../traffic-policy/sign-in/identity-provider.ts';
import type { GatewayContext } from '../../context/gateway-context.ts';
import { noteDashboardRefusal } from '../../events/activity-log.ts';
import type { PersonRow } from '../../store/people.ts';
import { DatabaseAway, DatabaseBusy, DatabaseUnwritable } from '../../store/sql/database-problems.ts';
import { timestamp } from '../../store/store.ts';
import { type ChosenWay, endSignIns, personOfLink, usePersonLink } from '../manage-sign-ins.ts';
import { MAX_PASSWORD, MIN_PASSWORD, Passwords, PasswordsBusy } from '../passwords.ts';
import type { PeopleProvider, SignInRequest } from '../people-provider.ts';
import { agreed, hasAgreed, type PageSession, PageSessions } from './page-session.ts';
import {
  type Application,
  accountView,
  CROSS_SITE,
  chooseView,
  continueView,
  FORM_GONE,
  LINK_GONE,
  notForDashboard,
  PASSKEY_SCRIPT,
  REQUEST_GONE,
  SIGNED_OUT,
  type SignInDestination,
  STYLE_DIGESTS,
  signInView,
} from './page-views.ts';
import { PasskeyForms } from './passkey-forms.ts';
import type { Expected } from './verify-passkey.ts';

/** The responses of authenticators are longest. */
const BODY = { maxBytes: 32_768, timeoutMs: 10_000 };
const MINUTE_MS = 60_000;
/** Forms of a client network. */
const FORMS = { requests: 60, windowMs: MINUTE_MS };
/** Wrong passwords of a client network, and of a person from networks where they have not signed in. */
const GUESSES = { requests: 20, windowMs: 5 * MINUTE_MS };
const GUESSES_AT_PERSON = { requests: 20, windowMs: 20 * MINUTE_MS };

const NOT_ADMITTED = 'ERR_GATEWAY_NOT_ADMITTED';
/** Also that of an unknown API key. */
const WRONG_CODE = 'ERR_NGROK_203';
const WRONG = 'The email address or the password is wrong.';

const HEADERS = {
  // Without form-action: Chromium applies it to the redirects that follow a form, which lead to tunnels and on from there.
  'Content-Security-Policy': `default-src 'none'; script-src 'self'; style-src ${STYLE_DIGESTS.join(' ')}; base-uri 'none'; frame-ancestors 'none'`,
  'X-Frame-Options': 'DENY',
  'X-Content-Type-Options': 'nosniff',
  'Cross-Origin-Opener-Policy': 'same-origin',
  // Links and requests stay here. With no-referrer, browsers would not say which page sends a form.
  'Referrer-Policy': 'same-origin',
  'Cache-Control': 'no-store',
};

type PageContext = Pick<GatewayContext, 'store' | 'activity' | 'log'> & {
  options: Pick<GatewayContext['options'], 'listApplications'>;
};

interface PageOptions {
  readonly people: PeopleProvider;
  /** IP restrictions of endpoints, to which this page leads. */
  readonly isRefused: (client: { readonly remoteAddress?: string | undefined }) => boolean;
  /** What a person can open, on the port by which the browser has reached the gateway (empty: the usual one). */
  readonly applications: (person: SignedInPerson, port: string) => readonly Application[];
  readonly passwords?: Passwords;
  /** Milliseconds since 1970. */
  readonly wallClock?: () => number;
}

/**
 * The gateway's page at which its people sign in. Tunnels belong to others: passwords are typed here only, at a host of the
 * gateway. Only passkeys need its script.
 */
export function createSignInPage(context: PageContext, own: PageOptions): Express {
  const page = new SignInPage(context, own);
  const app = express();
  app.disable('x-powered-by').enable('strict routing').enable('case sensitive routing');
  answerUnconditionally(app);
  app.use(page.guard);
  app.get('/', page.show);
  app.get('/link/:token', page.showLink);
  app.get(PASSKEY_SCRIPT, page.script);
  const form = [
    page.guardForm,
    bodyParser({ ...BODY, parse: (bytes) => new URLSearchParams(bytes.toString()), unreadable }),
  ];
  app.post('/sign-in', ...form, page.signIn);
  app.post('/continue', ...form, page.continue);
  app.post('/sign-out', ...form, page.signOut);
  app.post('/link/:token', ...form, page.choosePassword);
  app.post('/link/:token/passkey', ...form, page.choosePasskey);
  app.post('/passkey', ...form, page.signInWithPasskey);
  app.use((_req, res) => notice(res, 404, { title: 'Not found', text: 'There is no such page.', link: HOME }));
  app.use(errorHandler(context.log));
  return app;
}

const HOME = { href: '/', text: 'Sign in' };

class SignInPage {
  readonly #sessions: PageSessions;
  readonly #passkeys: PasskeyForms;
  readonly #passwords: Passwords;
  readonly #forms = new RequestRate(FORMS, systemClock.now);
  readonly #guesses = new RequestRate(GUESSES, systemClock.now);
  readonly #guessesAtPerson = new RequestRate(GUESSES_AT_PERSON, systemClock.now);
  readonly #wallClock: () => number;
  #script: Buffer | null = null;

  constructor(
    private readonly context: PageContext,
    private readonly own: PageOptions,
  ) {
    const { store } = context;
    const { people, passwords = new Passwords(), wallClock = Date.now } = own;
    this.#passwords = passwords;
    this.#wallClock = wallClock;
    const keyFor = (purpose: string) => store.box.keyFor(purpose);
    this.#sessions = new PageSessions(keyFor, people, wallClock);
    this.#passkeys = new PasskeyForms(keyFor, people.host, wallClock);
  }

  readonly guard: RequestHandler = (req, res, next) => {
    res.set(HEADERS);
    if (this.own.isRefused(req.socket)) {
      throw new ApiError(403, NOT_ADMITTED, 'This gateway does not accept requests from your address.');
    }
    next();
  };

  readonly guardForm: RequestHandler = (req, res, next) => {
    if (!isOwnPage(req)) return notice(res, 403, CROSS_SITE);
    requireLeft(this.#forms.take(networkOf(req)));
    next();
  };

  readonly show: RequestHandler = async (req, res) => {
    const query = new URL(req.url, 'https://page').searchParams;
    const sealed = query.get('request');
    const request = sealed === null ? null : this.own.people.requestIn(sealed);
    if (sealed !== null && request === null) return notice(res, 400, REQUEST_GONE);
    const session = this.#sessions.of(req);
    const person = session && this.own.people.find(session.subject);
    const to = destinationOf(sealed, request);
    if (session === null || person === null) return send(res, 200, await this.#signInView(to));
    if (request === null || to === null) {
      const { port } = new URL(`https://${req.headers.host}`);
      const isListed = this.context.options.listApplications === true;
      return send(res, 200, accountView(person, isListed ? this.own.applications(person, port) : undefined));
    }
    const isOther = query.get('as') === 'other';
    if (isOther || !this.#suffices(session, request)) return send(res, 200, await this.#signInView(to));
    if (!hasAgreed(session, request)) return send(res, 200, continueView(to, person));
    this.#leadBack(req, res, session, request);
  };

  readonly signIn: RequestHandler = async (req, res) => {
    const { sealed, request } = await this.#requestOf(req);
    if (sealed !== null && request === null) return notice(res, 400, REQUEST_GONE);
    const { email, password } = credentialsIn(req);
    const person = await this.#identify(email, password, networkOf(req));
    if (person !== null) return this.#enter(req, res, person.id, request);
    this.context.log.info({ client: req.ip }, 'wrong password of a person');
    if (request?.isForDashboard) noteDashboardRefusal(this.context.activity, req.ip, { code: WRONG_CODE });
    const again = { email, problem: WRONG };
    send(res, 403, signInView(destinationOf(sealed, request), this.#passkeys.signIn(), again));
  };

  readonly signInWithPasskey: RequestHandler = async (req, res) => {
    const { store } = this.context;
    const { sealed, request } = await this.#requestOf(req);
    if (sealed !== null && request === null) return notice(res, 400, REQUEST_GONE);
    const form = this.#passkeys.open(fieldsOf(req).get('ticket') ?? '');
    if (form === null) return notice(res, 403, FORM_GONE);
    const { usedPasskey } = await import('./verify-passkey.ts');
    const passkey = await usedPasskey(responseIn(req), this.#expected(req, form.challenge), (id) =>
      store.passkeys.byCredential(id),
    );
    if (passkey === null) return notice(res, 403, FORM_GONE);
    const expiresAt = timestamp(form.expiresAt);
    const use = () => store.passkeys.use(passkey, form.challenge, expiresAt, store.now());
    const isUsed = await store.database.write(use, null);
    if (isUsed) await this.#enter(req, res, passkey.person_id, request);
    else notice(res, 403, FORM_GONE);
  };

  readonly continue: RequestHandler = async (req, res) => {
    const { sealed, request } = await this.#requestOf(req);
    if (sealed === null || request === null) return notice(res, 400, REQUEST_GONE);
    const session = this.#sessions.of(req);
    if (session === null || !this.#suffices(session, request)) {
      return send(res, 200, await this.#signInView(destinationOf(sealed, request)));
    }
    this.#sessions.keep(res, agreed(session, request));
    this.#leadBack(req, res, session, request);
  };

  readonly signOut: RequestHandler = async (req, res) => {
    const { store } = this.context;
    const { people } = this.own;
    const session = this.#sessions.of(req);
    if (session !== null) {
      const { subject } = session;
      const end = () => endSignIns(store, { issuer: people.issuer, subject });
      await store.database.write(end, callerOf(subject, req));
    }
    this.#sessions.forget(res);
    notice(res, 200, SIGNED_OUT);
  };

  readonly showLink: RequestHandler<{ token: string }> = async ({ params: { token } }, res) => {
    const person = personOfLink(this.context.store, token);
    if (person === null) return notice(res, 410, LINK_GONE);
    send(res, 200, await this.#chooseView(person, token));
  };

  readonly choosePassword: RequestHandler<{ token: string }> = async (req, res) => {
    const { store } = this.context;
    const { token } = req.params;
    const person = personOfLink(store, token);
    if (person === null) return notice(res, 410, LINK_GONE);
    const { password } = credentialsIn(req);
    const problem = problemOf(password, person);
    if (problem !== null) return send(res, 400, await this.#chooseView(person, token, problem));
    const network = networkOf(req);
    const password_hash = await this.#passwords.hash(password, { network, isKnown: true });
    await this.#choose(req, res, person, { password_hash });
  };

  readonly choosePasskey: RequestHandler<{ token: string }> = async (req, res) => {
    const { token } = req.params;
    const { store } = this.context;
    const person = personOfLink(store, token);
    if (person === null) return notice(res, 410, LINK_GONE);
    const form = this.#passkeys.open(fieldsOf(req).get('ticket') ?? '', person.id);
    const { createdPasskey } = await import('./verify-passkey.ts');
    const passkey = form && (await createdPasskey(responseIn(req), this.#expected(req, form.challenge)));
    const owner = passkey && store.passkeys.byCredential(passkey.credential_id)?.person_id;
    // Anyone with a link can claim the identifier of another person's passkey.
    if (passkey && (owner === undefined || owner === person.id)) return this.#choose(req, res, person, { passkey });
    send(
      res,
      400,
      await this.#chooseView(person, token, 'The passkey could not be saved. Try again, or choose a password.'),
    );
  };

  readonly script: RequestHandler = async (_req, res) => {
    this.#script ??= await readFile(join(PACKAGED_PAGES, 'assets', 'sign-in.js'));
    res.type('text/javascript').set('Cache-Control', 'no-cache').send(this.#script);
  };

  async #choose(req: Request<{ token: string }>, res: Response, { id }: PersonRow, way: ChosenWay): Promise<void> {
    const { store } = this.context;
    const { people } = this.own;
    const use = () => usePersonLink(store, req.params.token, people.issuer, way);
    // Another request may have used the link meanwhile.
    const used = await store.database.write(use, callerOf(id, req));
    if (used === null) return notice(res, 410, LINK_GONE);
    if ('password_hash' in way) await this.#remember(id, networkOf(req));
    await this.#enter(req, res, id, null);
  }

  async #signInView(to: SignInDestination | null): Promise<string> {
    return signInView(to, this.#passkeys.signIn());
  }

  async #chooseView(row: PersonRow, token: string, problem?: string): Promise<string> {
    const person = shown(row);
    const isFirst = row.password_set_at === null && this.context.store.passkeys.ofPerson(row.id).length === 0;
    const form = this.#passkeys.choose(person, token);
    return chooseView(person, token, form, { isFirst, ...(problem !== undefined && { problem }) });
  }

  #expected({ headers }: Request, challenge: string): Expected {
    return { challenge, origin: `https://${headers.host}`, host: this.own.people.host };
  }

  /** Whether a sign-in at the gateway is recent enough for an endpoint. */
  #suffices({ signedInAt }: PageSession, { asksAgain, maxAgeMs }: SignInRequest): boolean {
    return !asksAgain && this.#wallClock() - signedInAt <= maxAgeMs;
  }

  /** Signs a browser in, and leads to where it was on the way to. A sign-in for an endpoint agrees to go on to it. */
  async #enter(req: Request, res: Response, subject: string, request: SignInRequest | null): Promise<void> {
    const { log } = this.context;
    const { people } = this.own;
    const before = this.#sessions.of(req);
    const endpoints = before?.subject === subject ? before.endpoints : [];
    const session = { subject, signedInAt: people.signInTime(subject), endpoints };
    this.#sessions.keep(res, request === null ? session : agreed(session, request));
    log.info({ person: subject }, 'person signed in');
    if (request === null) res.redirect(303, '/');
    else this.#leadBack(req, res, session, request);
  }

  /** Leads on to what has sent somebody here; no code for the dashboard is made for those who may not use it. */
  #leadBack(req: Request, res: Response, { subject, signedInAt }: PageSession, request: SignInRequest): void {
    const { activity } = this.context;
    const { people } = this.own;
    if (request.isForDashboard && !people.mayUseDashboard(subject)) {
      noteDashboardRefusal(activity, req.ip, { code: NOT_ADMITTED });
      notice(res, 403, notForDashboard(people.find(subject), request.callback));
    } else {
      res.redirect(303, people.returnUrl(request, subject, signedInAt));
    }
  }

  /** Takes as long for people who do not exist. @returns null when the password is wrong */
  async #identify(email: string, password: string, network: string): Promise<PersonRow | null> {
    const { people, familiarNetworks } = this.context.store;
    const person = people.byEmail(email);
    const isFamiliar = familiarNetworks.has(person?.id ?? '', network);
    requireLeft(this.#guesses.take(network));
    if (!isFamiliar) requireLeft(this.#guessesAtPerson.take(email));
    const giveBack = () => {
      this.#guesses.giveBack(network);
      if (!isFamiliar) this.#guessesAtPerson.giveBack(email);
    };
    const stored = person?.password_hash ?? NO_PASSWORD;
    const matches = await this.#passwords.matches(password, stored, { network, isKnown: isFamiliar }).catch((error) => {
      // It was not checked.
      giveBack();
      throw error;
    });
    if (!matches || person === null) return null;
    // It may have been replaced meanwhile.
    if (people.get(person.id)?.password_hash.equals(person.password_hash) !== true) return null;
    giveBack();
    await this.#remember(person.id, network);
    return person;
  }

  /** The right password signs in, too, while nothing can be written. */
  async #remember(personId: string, network: string): Promise<void> {
    const { store, log } = this.context;
    await store.familiarNetworks.remember(personId, network).catch((err: unknown) => {
      log.warn({ err, person: personId }, 'network of a person not remembered');
    });
  }

  async #requestOf(req: Request): Promise<{ sealed: string | null; request: SignInRequest | null }> {
    const sealed = fieldsOf(req).get('request');
    return { sealed, request: sealed === null ? null : this.own.people.requestIn(sealed) };
  }
}

const NO_PASSWORD = Buffer.alloc(0);

function problemOf(password: string, { email }: PersonRow): string | null {
  if (password.length < MIN_PASSWORD) return `The password is too short: choose at least ${MIN_PASSWORD} characters.`;
  if (password.length > MAX_PASSWORD) return `The password is too long: choose at most ${MAX_PASSWORD} characters.`;
  return password.toLowerCase() === email ? 'The password is your email address: choose another one.' : null;
}

function shown({ id, email, name, groups }: PersonRow) {
  return { subject: id, email, name, groups };
}

function destinationOf(sealed: string | null, request: SignInRequest | null): SignInDestination | null {
  if (sealed === null || request === null) return null;
  const { callback, isForDashboard = false } = request;
  return { request: sealed, host: new URL(callback).host, isDashboard: isForDashboard };
}

function fieldsOf(req: Request): URLSearchParams {
  return req.body instanceof URLSearchParams ? req.body : new URLSearchParams();
}

function credentialsIn(req: Request): { email: string; password: string } {
  const fields = fieldsOf(req);
  return {
    email: (fields.get('email') ?? '').trim().toLowerCase().slice(0, 254),
    password: (fields.get('password') ?? '').slice(0, MAX_PASSWORD + 1),
  };
}

function responseIn(req: Request): string {
  return fieldsOf(req).get('response') ?? '';
}

function networkOf({ ip = '' }: Request): string {
  return clientNetwork(ip);
}

function callerOf(subject: string, { ip }: Request) {
  return { by: subject, from: ip ?? null };
}

/** @param seconds to wait; null: there is room */
function requireLeft(seconds: number | null): void {
  if (seconds === null) return;
  throw new ApiError(429, 'ERR_NGROK_226', `Too many attempts. Try again in ${seconds} seconds.`, {
    retryAfter: seconds,
  });
}

function unreadable(problem: BodyProblem, cause: unknown): ApiError {
  return new ApiError(400, 'ERR_NGROK_212', `The form could not be read: ${problem}. Send it again.`, { cause });
}

function errorHandler(log: Log): ErrorRequestHandler {
  return (error, _req, res, _next) => {
    if (error instanceof URIError) return notice(res, 404, LINK_GONE);
    const known = knownProblem(error);
    if (known === null) log.error({ err: error }, 'sign-in page failed');
    const { status, message, retryAfter } = known ?? new ApiError(500, 'ERR_NGROK_700', 'This has failed. Try again.');
    if (retryAfter !== null) res.set('Retry-After', String(retryAfter));
    notice(res, status, { title: 'Not possible now', text: message, link: HOME });
  };
}

function knownProblem(error: unknown): ApiError | null {
  if (error instanceof ApiError) return error;
  if (error instanceof PasswordsBusy) return busy('Too many people sign in at the moment.');
  const isAway = [DatabaseBusy, DatabaseAway, DatabaseUnwritable].some((problem) => error instanceof problem);
  return isAway ? busy('The gateway cannot write at the moment.') : null;
}

function busy(why: string): ApiError {
  return new ApiError(503, 'ERR_NGROK_700', `${why} Try again later.`, { retryAfter: 5 });
}

function notice(res: Response, status: number, content: PageNotice): void {
  send(res, status, noticePage(content));
}

function send(res: Response, status: number, html: string): void {
  res.status(status).type('html').send(html);
}
