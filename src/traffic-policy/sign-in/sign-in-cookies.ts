import { nameAt, trimSpace, valueAt } from '../../lib/http/header-fields.ts';

/** What all cookies of the sign-in have in their names, after the prefix that browsers enforce. */
const MARK = 'ngrok-sign-in-';
const SHARE_MARK = 'ngrok-share-';
/** Accepted from this host only, over HTTPS: neither a neighbour below the same site nor a page without TLS can set it. */
const HOST = '__Host-';
const SECURE = '__Secure-';
/** What the names of the cookies of share links begin with; the identifier of the link follows. */
export const SHARE = HOST + SHARE_MARK;
const OWN = [HOST + MARK, SECURE + MARK, SHARE];
/** Anywhere in the name: browsers and upstreams may take what is around it for white space. */
const SETS_OWN = /^[^;]*__(?:Host|Secure)-ngrok-(?:sign-in|share)-/;

/** Browsers keep at least 4,096 bytes of a cookie with its name and attributes (RFC 6265, section 6.1). */
const MAX_PART = 3_500;
/** Tokens of providers are long; a request's headers have 64 KiB. */
const MAX_PARTS = 6;
/** Sign-ins of one browser that have begun, for example in several tabs. */
const MAX_ATTEMPTS = 10;
/** Bytes of what browsers send of them: the headers of a request have 64 KiB. */
const MAX_ATTEMPTS_BYTES = 16_384;
/** Share links of a browser that are looked at for a request. */
const MAX_SHARE_COOKIES = 20;

/** The names of the cookies of one policy at one site: another policy's have other names. */
export interface CookieNames {
  /** The domain that gets the session; null: this host only. */
  readonly domain: string | null;
  readonly session: string;
  /** Of the cookies of attempts, which go to this host only. */
  readonly attempt: string;
}

/** @param tag tells the cookies of policies apart */
export function cookieNames(tag: string, domain: string | null): CookieNames {
  return { domain, session: `${domain === null ? HOST : SECURE}${MARK}${tag}`, attempt: `${HOST}${MARK}${tag}-` };
}

export type Cookies = ReadonlyMap<string, string>;

export const NO_COOKIES: Cookies = new Map();

/**
 * Takes the cookies of sign-ins and share links out of the headers of a request: a name may have another owner by now, who
 * could use them when the first one is back. Upstreams may not have room for them, either.
 *
 * @param headers flat name, value list; changes in place
 */
export function takeOwnCookies(headers: string[]): Cookies {
  let taken: Map<string, string> | null = null;
  for (let at = headers.length - 2; at >= 0; at -= 2) {
    if (!isNamed(headers, at, 'cookie')) continue;
    const value = valueAt(headers, at);
    if (!value.includes('-ngrok-s')) continue;
    taken ??= new Map();
    const rest: string[] = [];
    for (const part of value.split(';')) {
      const pair = trimSpace(part);
      if (!OWN.some((own) => pair.startsWith(own))) {
        rest.push(pair);
        continue;
      }
      const equals = pair.indexOf('=');
      taken.set(pair.slice(0, equals), pair.slice(equals + 1));
    }
    if (rest.length === 0) headers.splice(at, 2);
    else headers[at + 1] = rest.join('; ');
  }
  return taken ?? NO_COOKIES;
}

/** Whether a Set-Cookie header sets or deletes a cookie of a sign-in or share link. */
export function setsOwnCookie(value: string): boolean {
  return value.includes('-ngrok-s') && SETS_OWN.test(value);
}

/** Compares lengths first: hardly any name has to be copied in lower case. */
function isNamed(headers: readonly string[], at: number, lower: string): boolean {
  const name = nameAt(headers, at);
  return name.length === lower.length && name.toLowerCase() === lower;
}

/** @returns the sealed session; null without one */
export function sessionCookieIn(cookies: Cookies, { session }: CookieNames): string | null {
  const first = cookies.get(session);
  if (first === undefined) return null;
  const dot = first.indexOf('.');
  const count = Number(first.slice(0, dot));
  let sealed = first.slice(dot + 1);
  for (let at = 1; at < count && at < MAX_PARTS; at++) sealed += cookies.get(`${session}.${at}`) ?? '';
  return sealed;
}

/** @returns headers that make the browser keep a session; null when it is too long */
export function keepSessionCookie(
  sealed: string,
  seconds: number,
  cookies: Cookies,
  names: CookieNames,
): string[] | null {
  const count = Math.ceil(sealed.length / MAX_PART);
  if (count > MAX_PARTS) return null;
  const headers = forgetSessionCookie(cookies, names, count);
  for (let at = 0; at < count; at++) {
    const part = sealed.slice(at * MAX_PART, (at + 1) * MAX_PART);
    const [name, value] = at === 0 ? [names.session, `${count}.${part}`] : [`${names.session}.${at}`, part];
    headers.push(...setCookie(name, value, seconds, names.domain));
  }
  return headers;
}

/** @returns headers that make the browser forget a session, or the parts of it from a number on */
export function forgetSessionCookie(cookies: Cookies, { session, domain }: CookieNames, from = 0): string[] {
  const parts = Array.from({ length: MAX_PARTS }, (_, at) => (at === 0 ? session : `${session}.${at}`));
  return parts.slice(from).flatMap((name) => (cookies.has(name) ? setCookie(name, '', 0, domain) : []));
}

/**
 * @param id of the attempt; those of later ones are greater
 * @returns headers that make the browser keep an attempt, and forget the oldest ones beyond the limit
 */
export function keepAttempt(
  id: string,
  sealed: string,
  seconds: number,
  cookies: Cookies,
  { attempt }: CookieNames,
): string[] {
  const begun = [...cookies.keys()].filter((name) => name.startsWith(attempt)).sort();
  let bytes = sealed.length;
  const newestSurplus = begun.findLastIndex((name, at) => {
    bytes += cookies.get(name)?.length ?? 0;
    return begun.length - at >= MAX_ATTEMPTS || bytes > MAX_ATTEMPTS_BYTES;
  });
  // No more than browsers can have: a client can send thousands, each of which would make the response longer.
  const surplus = begun.slice(0, Math.min(MAX_ATTEMPTS, newestSurplus + 1));
  return [
    ...surplus.flatMap((name) => setCookie(name, '', 0, null)),
    ...setCookie(attempt + id, sealed, seconds, null),
  ];
}

/** Headers that make the browser forget the share links that it has opened. */
export function forgetShareLinks(cookies: Cookies): string[] {
  return shareCookies(cookies).flatMap(([name]) => setCookie(name, '', 0, null));
}

/** The cookies of share links: as many as browsers can have, of any number that clients send. */
export function shareCookies(cookies: Cookies): [name: string, value: string][] {
  return [...cookies].filter(([name]) => name.startsWith(SHARE)).slice(0, MAX_SHARE_COOKIES);
}

export function forgetAttempt(id: string, { attempt }: CookieNames): string[] {
  return setCookie(attempt + id, '', 0, null);
}

/** Lax: people follow links to their devices. Scripts of the page cannot read it. */
export function setCookie(name: string, value: string, seconds: number, domain: string | null): string[] {
  const scope = domain === null ? '' : `; Domain=${domain}`;
  return ['set-cookie', `${name}=${value}; Path=/${scope}; Max-Age=${seconds}; Secure; HttpOnly; SameSite=Lax`];
}
