import { challengeOf } from '../../traffic-policy/sign-in/attempt.ts';
import type {
  Attempt,
  GatewayPeople,
  SignedIn,
  SignedInPerson,
} from '../../traffic-policy/sign-in/identity-provider.ts';
import { SignInFailed } from '../../traffic-policy/sign-in/identity-provider.ts';
import type { PersonRow } from '../store/people.ts';
import type { Store } from '../store/store.ts';
import { CookieSeal } from './cookie-seal.ts';

/** Milliseconds in which a browser brings a code back; it follows a redirect. */
const CODE_MS = 60_000;
/** As long as the endpoint waits for the person to return. */
const REQUEST_MS = 15 * 60_000;
const REQUEST_OWNER = 'request';
const NO_TOKENS = { identity: '', access: '', refresh: '' };

/**
 * What an endpoint, or the dashboard, asks for when it sends somebody to sign in. Only the gateway can seal one: none leads to
 * another host.
 */
export interface SignInRequest {
  readonly callback: string;
  readonly owner: string;
  readonly state: string;
  /** Of PKCE. */
  readonly challenge: string;
  /** Whether somebody who is signed in is asked again. */
  readonly asksAgain: boolean;
  /** Milliseconds for which a sign-in is recent enough. */
  readonly maxAgeMs: number;
  /** Whether it is for the dashboard; endpoints cannot ask for that. */
  readonly isForDashboard?: boolean;
  readonly startedAt: number;
}

interface Code {
  readonly subject: string;
  readonly challenge: string;
  /** When the person signed in at the gateway. */
  readonly signedInAt: number;
  readonly issuedAt: number;
}

/** A person who has signed in at the gateway, in milliseconds since 1970. */
export interface PersonSignIn {
  readonly subject: string;
  readonly signedInAt: number;
}

type PeopleStore = Pick<Store, 'box' | 'people' | 'endedSignIns'>;

/**
 * Signs people of the gateway in at its endpoints and its dashboard. Requests and codes are sealed, and nothing of them is stored: any gateway of
 * a shared database takes what another has sealed.
 */
export class PeopleProvider implements GatewayPeople {
  readonly issuer: string;
  readonly #requests: CookieSeal<SignInRequest>;
  readonly #codes: CookieSeal<Code>;

  /** @param host of the gateway's page for sign-in; `wallClock`: milliseconds since 1970 */
  constructor(
    private readonly store: PeopleStore,
    readonly host: string,
    private readonly wallClock: () => number = Date.now,
  ) {
    this.issuer = issuerOf(host);
    const keyFor = (purpose: string) => store.box.keyFor(purpose);
    this.#requests = new CookieSeal('sign-in request', keyFor, 0, wallClock);
    this.#codes = new CookieSeal('sign-in code', keyFor, 0, wallClock);
  }

  async authorizationUrl(parameters: Readonly<Record<string, string>>): Promise<string> {
    const {
      redirect_uri: callback = '',
      state = '',
      code_challenge: challenge = '',
      prompt,
      max_age,
      owner = '',
    } = parameters;
    return this.#pageWith({
      callback,
      owner,
      state,
      challenge,
      asksAgain: prompt === 'login',
      maxAgeMs: Number(max_age) * 1000,
    });
  }

  /** Where people sign in to the dashboard. They are asked who they are each time: the dashboard can do everything. */
  dashboardUrl(callback: string, { state, verifier }: Attempt): string {
    const challenge = challengeOf(verifier);
    return this.#pageWith({
      ...{ callback, state, challenge, owner: '', asksAgain: true, maxAgeMs: 0 },
      isForDashboard: true,
    });
  }

  #pageWith(request: Omit<SignInRequest, 'startedAt'>): string {
    const sealed = this.#requests.seal({ ...request, startedAt: this.wallClock() }, REQUEST_OWNER);
    return `${this.pageFor(request.callback)}?request=${sealed}`;
  }

  /** On the port by which the browser has reached the gateway: another one may be redirected to it. */
  pageFor(origin: string): string {
    const { port } = new URL(origin);
    return `https://${this.host}${port === '' ? '' : `:${port}`}/`;
  }

  /** @returns null for one that is too old, or was not sealed here */
  requestIn(sealed: string): SignInRequest | null {
    const request = this.#requests.open(sealed, REQUEST_OWNER);
    return request !== null && this.wallClock() - request.startedAt <= REQUEST_MS ? request : null;
  }

  returnUrl(request: SignInRequest, subject: string, signedInAt: number): string {
    const { callback, state, challenge } = request;
    const code = this.#codes.seal({ subject, challenge, signedInAt, issuedAt: this.wallClock() }, ownerOf(request));
    return `${callback}?${new URLSearchParams({ code, state })}`;
  }

  async redeem(callback: URL, attempt: Attempt): Promise<SignedIn> {
    return this.#redeem(callback, attempt, false);
  }

  /** Like {@link redeem}, for a browser that has returned to the dashboard. @throws {SignInFailed} */
  redeemForDashboard(callback: URL, attempt: Attempt): PersonSignIn {
    const { subject, email, signedInAt } = this.#redeem(callback, attempt, true);
    if (this.mayUseDashboard(subject)) return { subject, signedInAt };
    throw new SignInFailed(403, 'ERR_GATEWAY_NOT_ADMITTED', `${email} may not use the dashboard.`, '');
  }

  #redeem(callback: URL, { verifier }: Attempt, isForDashboard: boolean): SignedIn & PersonSignIn {
    const owner = ownerOf({ callback: callback.origin + callback.pathname, isForDashboard });
    const code = this.#codes.open(callback.searchParams.get('code') ?? '', owner);
    const isOurs =
      code !== null &&
      this.wallClock() - code.issuedAt <= CODE_MS &&
      code.challenge === challengeOf(verifier) &&
      this.isSignedIn(code.subject, code.signedInAt);
    const person = isOurs ? this.find(code.subject) : null;
    if (code === null || person === null) {
      throw new SignInFailed(400, 'ERR_NGROK_3122', 'The sign-in has expired, or was ended. Start again.', '');
    }
    return { ...person, tokens: NO_TOKENS, signedInAt: code.signedInAt };
  }

  /** Whether a person may use the dashboard now. */
  mayUseDashboard(subject: string): boolean {
    return this.store.people.get(subject)?.dashboard === true;
  }

  /** Whether a person is still signed in to the dashboard. */
  isAtDashboard({ subject, signedInAt }: PersonSignIn): boolean {
    return this.mayUseDashboard(subject) && this.isSignedIn(subject, signedInAt);
  }

  async renew(known: SignedIn): Promise<SignedIn> {
    const person = this.find(known.subject);
    if (person !== null) return { ...person, tokens: NO_TOKENS };
    throw new SignInFailed(403, 'ERR_NGROK_3151', 'The gateway has ended this session. Sign in again.', '');
  }

  find(subject: string): SignedInPerson | null {
    const row = this.store.people.recent(subject);
    return row && personOf(row);
  }

  /** Whether a sign-in at the gateway was not ended since. */
  isSignedIn(subject: string, signedInAt: number): boolean {
    return signedInAt >= this.#endedBefore(subject);
  }

  /** When a sign-in begins that succeeds now: the ends of earlier ones are known by the second only. */
  signInTime(subject: string): number {
    return Math.max(this.wallClock(), this.#endedBefore(subject));
  }

  #endedBefore(subject: string): number {
    return this.store.endedSignIns.before(this.host, this.issuer, subject, '');
  }
}

/** What the people of a gateway belong to, in ended sign-ins. */
export function issuerOf(host: string): string {
  return `https://${host}`;
}

/** What a code is bound to: one for an endpoint is worth nothing at the dashboard, whatever its callback. */
function ownerOf({ callback, isForDashboard }: Pick<SignInRequest, 'callback' | 'isForDashboard'>): string {
  return isForDashboard === true ? `dashboard ${callback}` : callback;
}

function personOf({ id, email, name, groups }: PersonRow): SignedInPerson {
  return { subject: id, email, name, groups };
}
