import { hash } from 'node:crypto';
import { BoundedMap } from '../../lib/bounded-map.ts';
import { NO_ERROR } from '../actions/restrict-ips.ts';
import { PolicyFailure } from '../policy-errors.ts';
import type { PolicyScope } from '../policy-subjects.ts';
import type { Template } from '../templates.ts';
import { UsedStates } from './attempt.ts';
import type { ProviderPlace, SignedIn, SignInClient } from './identity-provider.ts';
import { type CookieNames, cookieNames } from './sign-in-cookies.ts';
import { endOf, type Session, type SessionTimes } from './sign-in-session.ts';

/** Hosts of a wildcard endpoint that are remembered, each with its client. */
const MAX_SITES = 50;

const AUTHORITY = /^[a-z0-9._-]{1,253}(?::\d{1,5})?$/i;

export interface SiteOptions {
  readonly place: ProviderPlace;
  readonly clientId: Template;
  readonly clientSecret: Template;
  readonly authId: string;
  /** The domain that shares the session; null: each host has its own. */
  readonly cookieDomain: string | null;
}

/** A host at which people sign in, with the client that its policy names. */
export interface SignInSite {
  readonly origin: string;
  readonly host: string;
  readonly client: SignInClient;
  readonly names: CookieNames;
  /**
   * What sealed cookies are bound to. It contains the client's secret: the next owner of the host cannot read the sessions
   * of the one before, whose tokens are in them.
   */
  readonly owner: string;
}

export class Sites {
  readonly #known = new BoundedMap<string, SignInSite>(MAX_SITES);

  constructor(private readonly options: SiteOptions) {}

  /**
   * @param authority that the client has asked for: a policy could put any host into the header
   * @throws {PolicyFailure} when the host, or the client, cannot be used
   */
  of(authority: string, scope: PolicyScope): SignInSite {
    const clientId = this.options.clientId.text(scope);
    const clientSecret = this.options.clientSecret.text(scope);
    const key = `${authority}\n${clientId}\n${clientSecret}`;
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const site = this.#make(authority, clientId, clientSecret);
    this.#known.set(key, site);
    return site;
  }

  #make(authority: string, clientId: string, clientSecret: string): SignInSite {
    const { place, authId, cookieDomain: domain } = this.options;
    if (clientId === '') throw new PolicyFailure('ERR_NGROK_2234', 'config.client_id is empty');
    const url = `https://${authority}`;
    // Names below a wildcard can be anything, also what would be another host in a URL.
    if (!AUTHORITY.test(authority) || !URL.canParse(url)) {
      throw new PolicyFailure('ERR_NGROK_2300', 'the request has no usable host');
    }
    const { origin, hostname } = new URL(url);
    // The same endpoint with a dot at the end: an end of the sign-ins at a host is meant for those, too.
    const host = hostname.replace(/\.$/, '');
    if (domain !== null && host !== domain && !host.endsWith(`.${domain}`)) {
      throw new PolicyFailure('ERR_NGROK_2204', `config.auth_cookie_domain is neither ${host} nor a domain above it`);
    }
    const parts = [domain ?? host, place.issuer, clientId, hash('sha256', clientSecret), authId];
    const owner = JSON.stringify(parts);
    const names = cookieNames(hash('sha256', owner).slice(0, 8), domain);
    return { origin, host, client: { place, clientId, clientSecret }, names, owner };
  }
}

/** @returns the URL of a path at the site; of its root, when the path leads elsewhere */
export function urlAt({ origin }: SignInSite, target: string): string {
  const text = target.startsWith('/') ? origin + target : origin;
  return URL.canParse(text) && new URL(text).origin === origin ? new URL(text).href : `${origin}/`;
}

const MAX_RENEWALS = 200;
/** Milliseconds for which requests that still have the earlier cookie get the same answer of the provider, also a failure. */
const RENEWED_MS = 30_000;

interface Renewal {
  readonly startedAt: number;
  readonly person: Promise<SignedIn>;
}

/** What an endpoint remembers of sign-ins; none of it is needed when another gateway goes on. */
export class SignInState {
  readonly used = new UsedStates();
  readonly #renewals = new BoundedMap<string, Renewal>(MAX_RENEWALS);

  /**
   * Renews what is known of a session's person once for all requests that come with its cookie: a provider that replaces
   * refresh tokens takes a second use of one for a theft.
   */
  renewOnce(session: string, now: number, renew: () => Promise<SignedIn>): Promise<SignedIn> {
    const known = this.#renewals.get(session);
    if (known !== undefined && now - known.startedAt < RENEWED_MS) return known.person;
    const person = renew();
    this.#renewals.set(session, { startedAt: now, person });
    return person;
  }
}

/** What happened to a session with a request; null: it was used. */
export type SessionEvent = 'renewed' | 'ended' | null;

/** Where results are recorded, below `actions.ngrok`. */
export type SignInResult = 'oidc' | 'oauth' | 'gateway_sign_in';

/** What expressions read below `actions.ngrok`; its texts and lists are empty without a session. */
export function resultOf(
  session: Session | null,
  event: SessionEvent,
  now: number,
  {
    result,
    place,
    times,
  }: {
    readonly result: SignInResult;
    readonly place: { readonly issuer: string };
    readonly times: SessionTimes;
  },
): object {
  const hasEnded = session !== null && event === 'ended';
  // Rules on the response must not take somebody for signed in.
  const current = hasEnded ? null : session;
  const { subject = '', email = '', name = '', id = '', groups = [], tokens } = current ?? {};
  return {
    error: NO_ERROR,
    identity: {
      id: current === null ? '' : `idn_${hash('sha256', JSON.stringify([place.issuer, subject])).slice(0, 27)}`,
      email,
      name,
      ...(result === 'gateway_sign_in' && { groups }),
      provider_user_id: subject,
      current_session_id: id,
      current_provider_session_id: id,
    },
    identity_token: tokens?.identity ?? '',
    access_token: tokens?.access ?? '',
    refresh_token: tokens?.refresh ?? '',
    expires_at: current === null ? '' : new Date(endOf(current, times)).toISOString(),
    session_timed_out: hasEnded && now >= session.usedAt + times.idleMs,
    session_max_duration_reached: hasEnded && now >= session.signedInAt + times.maxMs,
    userinfo_refreshed: event === 'renewed',
  };
}
