import { hash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { CookieOptions, Response } from 'express';
import { cookieIn } from '../../../lib/http/browser-sessions.ts';
import { DAY_MS } from '../../../traffic-policy/sign-in/sign-in-session.ts';
import { CookieSeal } from '../cookie-seal.ts';
import type { PeopleProvider, SignInRequest } from '../people-provider.ts';

const COOKIE = '__Host-gateway-person';
const OWNER = 'page';
/** Milliseconds after which a browser has to sign in again. */
const SESSION_MS = 14 * DAY_MS;
const REMEMBERED_SESSIONS = 1_000;
/** Endpoints to which a person goes on without being asked; more would not fit into the cookie. */
const MAX_ENDPOINTS = 50;

/** Not strict: tunnels at domains of their own send people here, and count as other sites. */
const OPTIONS: CookieOptions = { path: '/', secure: true, httpOnly: true, sameSite: 'lax', encode: String };

/** A browser that is signed in at the gateway, sealed in its cookie. */
export interface PageSession {
  readonly subject: string;
  /** Milliseconds since 1970. */
  readonly signedInAt: number;
  /** Digests of the endpoints that the person has agreed to show themselves to. */
  readonly endpoints: readonly string[];
}

export class PageSessions {
  readonly #seal: CookieSeal<PageSession>;

  /** @param wallClock milliseconds since 1970 */
  constructor(
    keyFor: (purpose: string) => string,
    private readonly people: Pick<PeopleProvider, 'find' | 'isSignedIn'>,
    private readonly wallClock: () => number,
  ) {
    this.#seal = new CookieSeal('sign-in page', keyFor, REMEMBERED_SESSIONS, wallClock);
  }

  /** @returns null when nobody is signed in, any more */
  of(req: IncomingMessage): PageSession | null {
    const session = this.#seal.open(cookieIn(req, COOKIE) ?? '', OWNER);
    if (session === null || this.wallClock() - session.signedInAt > SESSION_MS) return null;
    const { subject, signedInAt } = session;
    return this.people.find(subject) !== null && this.people.isSignedIn(subject, signedInAt) ? session : null;
  }

  keep(res: Response, session: PageSession): void {
    const maxAge = session.signedInAt + SESSION_MS - this.wallClock();
    res.cookie(COOKIE, this.#seal.seal(session, OWNER), { ...OPTIONS, maxAge });
  }

  forget(res: Response): void {
    res.clearCookie(COOKIE, OPTIONS);
  }
}

/** The endpoint, and whose it is: the next owner of its host has to ask again. */
type Agreement = Pick<SignInRequest, 'callback' | 'owner'>;

/** Whether a person goes on to an endpoint without being asked. */
export function hasAgreed({ endpoints }: PageSession, request: Agreement): boolean {
  return endpoints.includes(digestOf(request));
}

export function agreed(session: PageSession, request: Agreement): PageSession {
  const digest = digestOf(request);
  const others = session.endpoints.filter((known) => known !== digest);
  return { ...session, endpoints: [...others, digest].slice(-MAX_ENDPOINTS) };
}

/** Names can be long. 128 bits: nobody finds another endpoint with the same one. */
function digestOf({ callback, owner }: Agreement): string {
  return hash('sha256', `${owner} ${callback}`, 'base64url').slice(0, 22);
}
