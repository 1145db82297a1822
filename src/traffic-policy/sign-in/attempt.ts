import { hash, randomBytes } from 'node:crypto';
import { BoundedMap } from '../../lib/bounded-map.ts';
import { type Attempt, SignInFailed } from './identity-provider.ts';
import type { CookieNames, Cookies } from './sign-in-cookies.ts';

/** Milliseconds in which people have to sign in at the provider. */
export const ATTEMPT_MS = 15 * 60_000;
/** A name of an attempt, and 256 bits: see {@link randomText}. */
const STATE = /^([0-9a-z]{9,20})\.[\w-]{43}$/;
const MAX_USED = 1_000;

/** Of attempts that have come back. */
export class UsedStates {
  readonly #used = new BoundedMap<string, true>(MAX_USED);

  /** @returns false when the state was used before: somebody replays a link of the provider */
  use(state: string): boolean {
    if (this.#used.has(state)) return false;
    this.#used.set(state, true);
    return true;
  }
}

/** @param target where to return to @returns a new attempt, and its name, which is greater than those of earlier ones */
export function beginAttempt(target: string, now: number): { id: string; attempt: Attempt } {
  const id = `${now.toString(36)}${randomBytes(4).toString('hex')}`;
  const state = `${id}.${randomText()}`;
  return { id, attempt: { state, nonce: randomText(), verifier: randomText(), target, startedAt: now } };
}

/** The challenge of PKCE (RFC 7636, S256). */
export function challengeOf(verifier: string): string {
  return hash('sha256', verifier, 'base64url');
}

interface ReturnedBrowser {
  /** What the provider sends back. */
  readonly state: string | null;
  readonly cookies: Cookies;
  readonly names: CookieNames;
  readonly open: (sealed: string) => Attempt | null;
  readonly used: UsedStates;
  readonly now: number;
}

/**
 * The attempt with which a browser comes back from the provider, once. Another browser's does not count: somebody else could
 * begin it, and sign this browser in as themselves.
 *
 * @throws {SignInFailed} when this browser has begun none with this state, or too long ago
 */
export function returnedAttempt({ state, cookies, names, open, used, now }: ReturnedBrowser) {
  if (state === null)
    throw new SignInFailed(400, 'ERR_NGROK_3120', 'The link lacks the parameter state. Start again.', '');
  const id = STATE.exec(state)?.[1] ?? '';
  const attempt = open((id !== '' && cookies.get(names.attempt + id)) || '');
  if (attempt?.state !== state) {
    throw new SignInFailed(
      400,
      'ERR_NGROK_3121',
      'This browser has not started this sign-in, or has finished it. Start again.',
      '',
    );
  }
  if (now - attempt.startedAt > ATTEMPT_MS) {
    throw new SignInFailed(400, 'ERR_NGROK_3119', 'The sign-in has taken more than 15 minutes. Start again.', '');
  }
  if (!used.use(state)) {
    throw new SignInFailed(400, 'ERR_NGROK_3123', 'This link was used before. Start again.', '');
  }
  return { id, attempt };
}

/** 256 bits, as PKCE recommends. */
function randomText(): string {
  return randomBytes(32).toString('base64url');
}
