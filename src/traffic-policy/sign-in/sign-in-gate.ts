import { messageOf } from '../../lib/errors.ts';
import { NOTICE_POLICY, noticePage, type PageNotice } from '../../lib/http/notice-page.ts';
import { isSameOrigin } from '../../lib/http/origin-check.ts';
import type { ActionContext } from '../action-context.ts';
import { requireOwnCookies } from '../action-problems.ts';
import type { NotAdmitted, PolicyRequest } from '../policy-subjects.ts';
import { SEALING_MS } from '../ports.ts';
import { firstValue } from '../scope/header-map.ts';
import { pathOf } from '../scope/url-parts.ts';
import {
  notAdmittedError,
  type PolicyAnswer,
  type PolicyError,
  policyError,
  type RequestOutcome,
  type RequestResult,
} from '../steps.ts';
import { ATTEMPT_MS, beginAttempt, challengeOf, returnedAttempt } from './attempt.ts';
import { type IdentityProvider, type SignedIn, type SignedInPerson, SignInFailed } from './identity-provider.ts';
import { GOOGLE } from './provider-presets.ts';
import {
  forgetAttempt,
  forgetSessionCookie,
  forgetShareLinks,
  keepAttempt,
  keepSessionCookie,
  sessionCookieIn,
} from './sign-in-cookies.ts';
import { DAY_MS, endOf, isUseDue, type Session, type SessionTimes } from './sign-in-session.ts';
import {
  resultOf,
  type SessionEvent,
  type SignInResult,
  type SignInSite,
  SignInState,
  type SiteOptions,
  Sites,
  urlAt,
} from './sign-in-site.ts';

const PATHS = '/ngrok/';
const LOGIN = '/ngrok/login';
const LOGOUT = '/ngrok/logout';
const CALLBACK = '/ngrok/oidc/callback';

/** Characters of a path and query that people return to: each attempt's is in a cookie, which browsers limit to 4,096 bytes. */
const MAX_TARGET = 2_048;
/** Milliseconds of processor time for an exchange with a provider, which is hardly measurable: TLS, documents, signatures. */
const EXCHANGE_MS = 5;
/** Instead of a target. */
const TOO_LONG = '';
const NO_STORE = ['cache-control', 'no-store'];
const NO_BODY = Buffer.alloc(0);
const NO_TOKENS = { identity: '', access: '', refresh: '' };

const NEEDS_HTTPS = policyError(
  403,
  'ERR_NGROK_3150',
  'This endpoint requires a sign-in, which needs HTTPS. Open it with https:// instead.',
);

const NEEDS_SIGN_IN: PolicyError = {
  ...policyError(401, 'ERR_NGROK_3150', 'This endpoint requires a sign-in. Open it in a browser.'),
  link: { href: '/', text: 'Sign in' },
};

interface GatedRequest {
  readonly request: PolicyRequest;
  readonly site: SignInSite;
}

/** Lets signed-in people through and sends others to sign in at the provider. */
export class SignInGate {
  readonly #sites: Sites;
  readonly #state: SignInState;

  constructor(
    private readonly options: SiteOptions & {
      readonly result: SignInResult;
      readonly scopes: readonly string[];
      /** Further parameters of the provider's URL. */
      readonly parameters: Readonly<Record<string, string>>;
      readonly times: SessionTimes;
      /** Milliseconds after which the provider is asked about the person again; null: never. */
      readonly renewMs: number | null;
      readonly allowsPreflight: boolean;
      /** Whom of the people that the provider signs in the endpoint lets in; left out: all. */
      readonly admits?: (person: SignedInPerson) => boolean;
    },
    private readonly context: ActionContext,
  ) {
    requireOwnCookies(context);
    this.#sites = new Sites(options);
    this.#state = context.ports.state.keep(SignInState, [], () => new SignInState());
  }

  /** @returns the answer to a client that has to sign in, or is signing in; undefined lets the request through */
  admit(request: PolicyRequest): RequestResult {
    if (request.connection.tls === null) return NEEDS_HTTPS;
    if (this.options.allowsPreflight && isPreflight(request)) return undefined;
    const gated = this.#begun(request);
    const answer = request.clientTarget.startsWith(PATHS) ? this.#atOwnPath(gated) : undefined;
    if (answer !== undefined) return answer;
    return this.#admitSession(gated);
  }

  async #admitSession(gated: GatedRequest): Promise<RequestOutcome | undefined> {
    const { request } = gated;
    const session = this.#sessionIn(gated);
    const now = this.context.ports.wallClock();
    if (session === null || !this.#isOpen(session, gated, now)) return this.#signInFirst(gated, session, now);
    const { renewMs, admits } = this.options;
    if (admits?.(session) === false) {
      this.#record(request, null, null, now);
      return notAdmittedError(this.#notAdmitted(session, request));
    }
    if (renewMs !== null && now - session.checkedAt >= renewMs) return this.#renewed(session, gated, now);
    this.#letThrough(session, gated, now, false);
    return undefined;
  }

  /** Lets a request through without a session, except for the paths at which people sign in. */
  pass(request: PolicyRequest): RequestResult {
    const isOwn = request.clientTarget.startsWith(PATHS) && request.connection.tls !== null;
    return isOwn ? this.#atOwnPath(this.#begun(request)) : undefined;
  }

  #begun(request: PolicyRequest): GatedRequest {
    return { request, site: this.#sites.of(request.clientHost, this.context.scopeOf(request)) };
  }

  #letThrough(session: Session, gated: GatedRequest, now: number, isRenewed: boolean): void {
    const { times } = this.options;
    if (isRenewed || isUseDue(session, times, now)) {
      setCookies(gated, this.#keep({ ...session, usedAt: now }, gated, now));
    }
    const { request } = gated;
    this.#record(request, session, isRenewed ? 'renewed' : null, now);
    if (isNavigation(request)) request.notAdmitted = () => this.#notAdmitted(session, request);
  }

  /** Tells somebody who has signed in that they may not come in, and leads to another sign-in. */
  #notAdmitted({ email, name }: SignedInPerson, { method, clientTarget }: PolicyRequest): NotAdmitted {
    const { authId } = this.options;
    const query = new URLSearchParams({
      ...(authId !== '' && { auth_id: authId }),
      ...(method === 'GET' && { redirect_path: clientTarget }),
    });
    const who = email || name || 'This account';
    return {
      message: `${who} may not open this page. Ask its owner, or sign in as somebody else.`,
      link: { href: `${LOGIN}${query.size > 0 ? `?${query}` : ''}`, text: 'Sign in as somebody else' },
    };
  }

  #sessionIn({ request, site }: GatedRequest): Session | null {
    const sealed = sessionCookieIn(request.ownCookies, site.names);
    const { sessions } = this.context.ports.signIn;
    const session = sealed === null ? null : sessions.open(sealed, site.owner, () => this.#spendOnSeal(request));
    const { people } = this.options.place;
    if (session === null || people === undefined) return session;
    const person = people.find(session.subject);
    return person && { ...session, ...person };
  }

  #isOpen(session: Session, { site }: GatedRequest, now: number): boolean {
    const { signIn } = this.context.ports;
    return (
      now < endOf(session, this.options.times) &&
      session.signedInAt >= signIn.endedBefore(site.host, site.client.place.issuer, session.subject, session.id)
    );
  }

  #signInFirst(gated: GatedRequest, session: Session | null, now: number): RequestResult {
    const { request } = gated;
    this.#record(request, session, 'ended', now);
    if (!isNavigation(request)) return NEEDS_SIGN_IN;
    return this.#answer(gated, () => this.#begin(gated, request.clientTarget, {}));
  }

  #atOwnPath(gated: GatedRequest): RequestResult {
    const { request, site } = gated;
    const path = pathOf(request.clientTarget);
    if (path !== LOGIN && path !== LOGOUT && path !== CALLBACK) return undefined;
    const { searchParams } = new URL(site.origin + request.clientTarget);
    if (path === CALLBACK) return this.#answer(gated, () => this.#finish(gated, searchParams.get('state')));
    const authId = searchParams.get('auth_id');
    if (authId !== null && authId !== this.options.authId) return undefined;
    const target = searchParams.get('redirect_path');
    // Images of other pages would push out the cookies of sign-ins that have begun.
    if (path === LOGIN && !isNavigation(request)) return NEEDS_SIGN_IN;
    // People who ask to sign in want to choose who they are.
    if (path === LOGIN) return this.#answer(gated, () => this.#begin(gated, target ?? '/', { prompt: promptAt(site) }));
    if (!isFromHere(request)) return page(signOutQuestion(site), [...NO_STORE, ...NOTICE_POLICY]);
    return this.#signOut(gated, target);
  }

  async #signOut(gated: GatedRequest, target: string | null): Promise<PolicyAnswer> {
    const { request, site } = gated;
    const session = this.#sessionIn(gated);
    if (session !== null) this.context.ports.signIn.signOut(session.id);
    // Who signs out does not expect to be let in by a link.
    const { ownCookies } = request;
    setCookies(gated, [...forgetSessionCookie(ownCookies, site.names), ...forgetShareLinks(ownCookies)]);
    return target === null ? signedOut(site) : redirect(urlAt(site, target));
  }

  /** Starts to sign somebody in. */
  async #begin(gated: GatedRequest, target: string, more: Record<string, string>): Promise<PolicyAnswer> {
    const { request, site } = gated;
    const provider = await this.#provider(gated);
    const { signIn, wallClock } = this.context.ports;
    const back = target.startsWith(PATHS) ? '/' : target.length > MAX_TARGET ? TOO_LONG : target;
    const { id, attempt } = beginAttempt(back, wallClock());
    this.#spendOnSeal(request);
    const sealed = signIn.attempts.seal(attempt, site.owner);
    const url = () =>
      provider.authorizationUrl({
        ...this.options.parameters,
        ...more,
        scope: this.options.scopes.join(' '),
        redirect_uri: site.origin + CALLBACK,
        state: attempt.state,
        ...(site.client.place.oauth === undefined && { nonce: attempt.nonce }),
        code_challenge: challengeOf(attempt.verifier),
        code_challenge_method: 'S256',
      });
    const location = await this.context.timeFor(request).run(url);
    setCookies(gated, keepAttempt(id, sealed, ATTEMPT_MS / 1000, request.ownCookies, site.names));
    return redirect(location);
  }

  /** Signs somebody in who has returned from the provider. */
  async #finish(gated: GatedRequest, state: string | null): Promise<PolicyAnswer> {
    const { request, site } = gated;
    const { signIn, wallClock } = this.context.ports;
    const { id, attempt } = returnedAttempt({
      state,
      cookies: request.ownCookies,
      names: site.names,
      open: (sealed) => signIn.attempts.open(sealed, site.owner, () => this.#spendOnSeal(request)),
      used: this.#state.used,
      now: wallClock(),
    });
    const provider = await this.#provider(gated);
    this.#spendOnExchange(request);
    const { clientLeft, connection } = request;
    const client = { clientIp: connection.clientIp, clientLeft };
    const person = await provider.redeem(new URL(site.origin + request.clientTarget), attempt, client);
    const now = wallClock();
    const session = this.#start(person, gated, now);
    this.#ended(gated, session.subject, null);
    setCookies(gated, [...forgetAttempt(id, site.names), ...this.#keep(session, gated, now)]);
    return attempt.target === TOO_LONG ? page(SIGNED_IN, NO_STORE) : redirect(urlAt(site, attempt.target));
  }

  /** A new session, which is written down meanwhile: people come in also when that fails. */
  #start(person: SignedIn, { request, site }: GatedRequest, now: number): Session {
    const { signIn } = this.context.ports;
    const { id, written } = signIn.begin({
      issuer: site.client.place.issuer,
      person,
      publicUrl: site.origin,
      host: site.names.domain === null ? site.host : null,
      endpointId: request.endpoint.id,
      clientIp: request.connection.clientIp,
      userAgent: firstValue(request.headers, 'user-agent') ?? '',
      expiresAt: now + this.options.times.maxMs,
    });
    written.catch((error: unknown) => {
      this.context.trouble('ERR_NGROK_2300', `a session is missing in lists of them: ${messageOf(error)}`);
    });
    // The ends of earlier sign-ins are known by the second only: this one is later.
    const ended = signIn.endedBefore(site.host, site.client.place.issuer, person.subject, id);
    const signedInAt = Math.max(now, ended, person.signedInAt ?? 0);
    return { ...person, id, signedInAt, usedAt: now, checkedAt: now };
  }

  async #renewed(session: Session, gated: GatedRequest, now: number): Promise<RequestOutcome | undefined> {
    try {
      const person = await this.#state.renewOnce(session.id, now, async () => {
        const provider = await this.#provider(gated);
        this.#spendOnExchange(gated.request);
        // Others with the same session wait for it, too, and a provider may have replaced the token.
        return provider.renew(session, { clientIp: gated.request.connection.clientIp });
      });
      this.#letThrough({ ...session, ...person, checkedAt: now }, gated, now, true);
      return undefined;
    } catch (error) {
      if (!(error instanceof SignInFailed)) throw error;
      this.context.trouble(error.code, error.detail);
      if (!error.isOutage || this.#isUnconfirmed(session, now)) return this.#signInFirst(gated, session, now);
      this.#letThrough(session, gated, now, false);
      return undefined;
    }
  }

  /** Whether an outage lasts so long that it may be how the provider answers about somebody who was removed, as Dex does. */
  #isUnconfirmed({ checkedAt }: Session, now: number): boolean {
    return now - checkedAt >= (this.options.renewMs ?? 0) + DAY_MS;
  }

  #provider({ request, site }: GatedRequest): Promise<IdentityProvider> {
    return this.context.ports.signIn.provider(site.client, () => this.#spendOnExchange(request));
  }

  #spendOnSeal(request: PolicyRequest): void {
    this.context.timeFor(request).spend(SEALING_MS);
  }

  #spendOnExchange(request: PolicyRequest): void {
    this.context.timeFor(request).spend(EXCHANGE_MS);
  }

  /** Answers with a page when somebody cannot be signed in. */
  async #answer(gated: GatedRequest, make: () => Promise<PolicyAnswer>): Promise<PolicyAnswer | PolicyError> {
    const { site } = gated;
    try {
      return await make();
    } catch (error) {
      if (!(error instanceof SignInFailed)) throw error;
      if (error.detail !== '') this.context.trouble(error.code, error.detail);
      const { status, code, message } = error;
      this.#ended(gated, null, code);
      return { ...policyError(status, code, message), link: { href: `${site.origin}/`, text: 'Sign in' } };
    }
  }

  #ended({ request, site }: GatedRequest, subject: string | null, error: string | null): void {
    const { host, client } = site;
    const { clientIp } = request.connection;
    this.context.ports.signIn.onEnd({ host, issuer: client.place.issuer, clientIp, subject, error });
  }

  /** @returns headers that make the browser keep a session */
  #keep(session: Session, { request, site }: GatedRequest, now: number): string[] {
    const { signIn } = this.context.ports;
    const seconds = Math.ceil((endOf(session, this.options.times) - now) / 1000);
    const seal = (content: Session) => {
      this.#spendOnSeal(request);
      const sealed = signIn.sessions.seal(content, site.owner);
      return keepSessionCookie(sealed, seconds, request.ownCookies, site.names);
    };
    const kept = seal({ ...session, tokens: this.#neededTokens(session) });
    if (kept !== null) return kept;
    this.context.trouble('ERR_NGROK_2300', "the provider's tokens are too long for cookies: they are left out");
    return seal({ ...session, tokens: NO_TOKENS }) ?? [];
  }

  /** Cookies have little room: only tokens that the policy reads are kept, and those that renew what is known of a person. */
  #neededTokens({ tokens: { identity, access, refresh } }: SignedIn): SignedIn['tokens'] {
    const { result, renewMs } = this.options;
    const isRead = (token: string) => this.context.readsResult(`actions.ngrok.${result}.${token}`);
    return {
      identity: isRead('identity_token') ? identity : '',
      access: isRead('access_token') || renewMs !== null ? access : '',
      refresh: isRead('refresh_token') || renewMs !== null ? refresh : '',
    };
  }

  #record(request: PolicyRequest, session: Session | null, event: SessionEvent, now: number): void {
    const { context, options } = this;
    if (context.policy.results.size === 0) return;
    context.record(request, options.result, resultOf(session, event, now, options));
  }
}

/** Whether a browser asks before it sends a request to another origin (Fetch standard, CORS preflight). */
function isPreflight({ method, headers }: PolicyRequest): boolean {
  return (
    method === 'OPTIONS' &&
    firstValue(headers, 'origin') !== undefined &&
    firstValue(headers, 'access-control-request-method') !== undefined
  );
}

/** Whether a person could follow a redirect to the provider: scripts, streams and forms cannot. */
function isNavigation({ method, headers }: PolicyRequest): boolean {
  if (method !== 'GET' && method !== 'HEAD') return false;
  const mode = firstValue(headers, 'sec-fetch-mode');
  if (mode !== undefined) return mode === 'navigate';
  return (
    ['sec-websocket-key', 'x-requested-with'].every((name) => firstValue(headers, name) === undefined) &&
    // Programs that ask for JSON would take the page at the end of the redirects for their answer.
    /html|^\*\/\*/.test(firstValue(headers, 'accept') ?? '*/*')
  );
}

/** Whether no page of another host has made the browser send a request. */
function isFromHere({ headers, clientHost: host }: PolicyRequest): boolean {
  const [origin, site] = ['origin', 'sec-fetch-site'].map((name) => firstValue(headers, name));
  return isSameOrigin({ origin, host, 'sec-fetch-site': site }, 'https');
}

const SIGNED_IN: PageNotice = {
  title: 'Signed in',
  text: `The address that you opened has more than ${MAX_TARGET.toLocaleString('en')} characters: open it again.`,
  link: { href: '/', text: 'Open the start page instead' },
};

/** Google lets people choose an account; it does not know `login`, which asks for the password again. */
function promptAt({ client }: SignInSite): string {
  return client.place.issuer === GOOGLE ? 'select_account' : 'login';
}

function setCookies({ request }: GatedRequest, headers: readonly string[]): void {
  request.responseCookies = [...(request.responseCookies ?? []), ...headers];
}

function redirect(location: string): PolicyAnswer {
  return { kind: 'answer', status: 302, headers: ['location', location, ...NO_STORE], body: NO_BODY, refused: false };
}

function signedOut({ origin, client }: SignInSite): PolicyAnswer {
  const { people } = client.place;
  const link = people
    ? { href: people.pageFor(origin), text: 'Sign out of this gateway, too' }
    : { href: LOGIN, text: 'Sign in' };
  return page({ title: 'Signed out', text: 'You have signed out here.', link }, NO_STORE);
}

/** Pages of other hosts can send a browser here, neighbours below the same site also in an image, with its cookies. */
function signOutQuestion({ host }: SignInSite): PageNotice {
  const text = `Another website has led you here. Sign out of ${host}, or close this page to stay signed in.`;
  return { title: 'Sign out?', text, button: 'Sign out' };
}

function page(notice: PageNotice, headers: readonly string[]): PolicyAnswer {
  const all = ['content-type', 'text/html; charset=utf-8', ...headers];
  return { kind: 'answer', status: 200, headers: all, body: Buffer.from(noticePage(notice)), refused: false };
}
