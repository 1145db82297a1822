import type { SignedIn } from './identity-provider.ts';

/** A signed-in browser, sealed in its cookie: the gateway keeps nothing. Times are milliseconds since 1970. */
export interface Session extends SignedIn {
  readonly id: string;
  readonly signedInAt: number;
  /** When it was last used, as of the cookie that says so. */
  readonly usedAt: number;
  /** When the provider was last asked about the person. */
  readonly checkedAt: number;
}

export interface SessionTimes {
  readonly maxMs: number;
  readonly idleMs: number;
}

export const DAY_MS = 24 * 3_600_000;

/** The longest session that a policy can allow; the keys of the cookies last as long. */
export const MAX_SESSION_MS = 90 * DAY_MS;

/** Milliseconds since 1970 at which a session ends when it is not used again. */
export function endOf({ signedInAt, usedAt }: Session, { maxMs, idleMs }: SessionTimes): number {
  return Math.min(signedInAt + maxMs, usedAt + idleMs);
}

/** Whether it is time to write down that a session is used: not at each request, as that changes the cookie. */
export function isUseDue({ usedAt }: Session, { idleMs }: SessionTimes, now: number): boolean {
  return now - usedAt > Math.min(idleMs / 10, DAY_MS / 24);
}
