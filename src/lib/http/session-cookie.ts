import type { IncomingMessage } from 'node:http';
import type { CookieOptions, Response } from 'express';
import { SESSION_SECONDS } from './browser-sessions.ts';
import { trimSpace } from './trim-space.ts';

/**
 * The prefix makes browsers accept it from this host only, over HTTPS and for all paths: neither a neighbour below the same
 * site nor a page without TLS can set it.
 */
export const SESSION_COOKIE = '__Host-device-agent';

const OPTIONS: CookieOptions = { path: '/', secure: true, httpOnly: true, sameSite: 'strict' };

/** The session that a request names; null without one, or when several cookies have the name. */
export function sessionIn({ headers }: IncomingMessage): string | null {
  const cookies = (headers.cookie ?? '').split(';').map((pair) => trimSpace(pair).split('='));
  const [found, ...more] = cookies.filter(([name]) => name === SESSION_COOKIE);
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
