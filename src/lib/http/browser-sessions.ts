import { createHash, randomBytes } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { CookieOptions, Response } from 'express';
import { BoundedMap } from '../bounded-map.ts';
import { trimSpace } from './header-fields.ts';

/** Signed-in browsers at a time; a further one ends the session that was used the longest ago. */
export const MAX_SESSIONS = 100;
const DAY_MS = 24 * 3_600_000;
/** A session ends when it was not used for so long. */
const SESSION_MS = 30 * DAY_MS;

/** How long a browser keeps the cookie, in seconds. */
export const SESSION_SECONDS = SESSION_MS / 1000;
/** When each session ends, in milliseconds since the Unix epoch, by the digest of its identifier. */
export type SessionEnds = ReadonlyMap<string, number>;

/** The sessions of signed-in browsers, known by digests only: who reads them cannot use them. */
export class BrowserSessions {
  readonly #ends = new BoundedMap<string, number>(MAX_SESSIONS);
  readonly #save: (sessions: SessionEnds) => Promise<void>;
  readonly #now: () => number;

  constructor({
    kept = new Map(),
    save = async () => {},
    now = Date.now,
  }: {
    /** Sessions of an earlier run. */
    kept?: SessionEnds;
    /** Called after a change; the sessions themselves have changed even if it rejects. */
    save?: (sessions: SessionEnds) => Promise<void>;
    /** Milliseconds since the Unix epoch. */
    now?: () => number;
  } = {}) {
    this.#save = save;
    this.#now = now;
    for (const [key, end] of kept) this.#ends.set(key, end);
  }

  /** Starts a session under an identifier that nobody else can know or choose; 256 bits. */
  async start(): Promise<string> {
    const id = randomBytes(32).toString('base64url');
    this.#ends.set(digest(id), this.#now() + SESSION_MS);
    // On a full disk, the page is needed most: then the session lasts until the restart.
    await this.#save(this.#ends).catch(() => {});
    return id;
  }

  /** Whether a session is open; using it prolongs it. */
  isOpen(id: string): boolean {
    const key = digest(id);
    const end = this.#ends.get(key);
    if (end === undefined) return false;
    const now = this.#now();
    if (end <= now) return !this.#ends.delete(key);
    // Once a day: each time is a write to the disk. Without it, the session ends a little earlier after a restart.
    if (end - now < SESSION_MS - DAY_MS) {
      this.#ends.set(key, now + SESSION_MS);
      this.#save(this.#ends).catch(() => {});
    }
    return true;
  }

  /** A question that may be asked often: whether a session lasts. Asking does not prolong it. */
  lasting(id: string): () => boolean {
    const key = digest(id);
    return () => (this.#ends.get(key) ?? 0) > this.#now();
  }

  async end(id: string): Promise<void> {
    if (this.#ends.delete(digest(id))) await this.#save(this.#ends);
  }

  async endAll(): Promise<void> {
    this.#ends.clear();
    await this.#save(this.#ends);
  }
}

/** Looking up a digest takes the same time whatever part of a secret was guessed. */
function digest(text: string): string {
  return createHash('sha256').update(text).digest('base64url');
}

/**
 * The prefix makes browsers accept it from this host only, over HTTPS and for all paths: neither a neighbour below the same
 * site nor a page without TLS can set it.
 */
export const SESSION_COOKIE = '__Host-device-agent';

const OPTIONS: CookieOptions = { path: '/', secure: true, httpOnly: true, sameSite: 'strict' };

/** The session that a request names; null without one, or when several cookies have the name. */
export function sessionIn(req: IncomingMessage): string | null {
  return cookieIn(req, SESSION_COOKIE);
}

/** The value of a cookie; null without one, or when several have the name. */
export function cookieIn({ headers }: IncomingMessage, wanted: string): string | null {
  const cookies = (headers.cookie ?? '').split(';').map((pair) => trimSpace(pair).split('='));
  const [found, ...more] = cookies.filter(([name]) => name === wanted);
  return more.length === 0 ? (found?.[1] ?? null) : null;
}

/** Makes the browser keep a session. */
export function keepSession(res: Response, id: string): void {
  res.cookie(SESSION_COOKIE, id, { ...OPTIONS, maxAge: SESSION_SECONDS * 1000 });
}

/** Makes the browser forget its session. */
export function forgetSession(res: Response): void {
  res.clearCookie(SESSION_COOKIE, OPTIONS);
}
