import type { Clock } from '../../lib/time/clock.ts';
import type { Handler } from './handler.ts';
import { refuse } from './refuse.ts';

/** How many requests an API key may send. */
export interface RateLimit {
  requests: number;
  windowMs: number;
}

/** Keys tracked at once; idle keys are dropped first. */
const MAX_KEYS = 10_000;

/**
 * Limits the requests of each API key: bursts up to the limit, then an even rate. This is the generic cell rate
 * algorithm, which stores one number for each key.
 */
export function rateLimit({ requests, windowMs }: RateLimit, clock: Clock): Handler {
  const intervalMs = windowMs / requests;
  /** The theoretical arrival time of each key's next request. */
  const nextAt = new Map<string, number>();
  return (_req, res, next) => {
    const key = String(res.locals.apiKeyId);
    const now = clock.now();
    const start = Math.max(nextAt.get(key) ?? now, now);
    const waitMs = start + intervalMs - now - windowMs;
    if (waitMs > 0) {
      const retryAfter = Math.ceil(waitMs / 1000);
      throw refuse(
        429,
        226,
        `rate limit exceeded: ${requests} requests in ${windowMs / 1000} s; wait ${retryAfter} s`,
        { retryAfter },
      );
    }
    if (!nextAt.has(key) && nextAt.size >= MAX_KEYS) forgetIdle(nextAt, now);
    nextAt.set(key, start + intervalMs);
    next();
  };
}

function forgetIdle(nextAt: Map<string, number>, now: number): void {
  for (const [key, time] of nextAt) if (time <= now) nextAt.delete(key);
}
