import { hash } from 'node:crypto';
import { BoundedMap } from '../../lib/bounded-map.ts';
import { PolicyFailure } from '../policy-errors.ts';
import type { PolicyScope } from '../policy-subjects.ts';
import { firstValue } from '../scope/header-map.ts';
import type { Template } from '../templates.ts';
import type { ProviderPlace, SignInClient } from './identity-provider.ts';
import { type CookieNames, cookieNames } from './sign-in-cookies.ts';

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

  /** @throws {PolicyFailure} when the request's host, or the client, cannot be used */
  of(scope: PolicyScope): SignInSite {
    const authority = firstValue(scope.request?.headers ?? [], 'host') ?? '';
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
