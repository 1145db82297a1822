import type { Clock } from '../../lib/clock.ts';
import { refuse } from './refuse.ts';
import type { Handler } from './router.ts';

/** How many requests an API key may make. */
export interface RateLimit {
  requests: number;
  windowMs: number;
}

/** Keys remembered at once; those not seen for a window are forgotten first. */
const MAX_KEYS = 10_000;

/**
 * Refuses requests of a key beyond its rate: bursts up to the limit, then evenly spread (the generic cell rate
 * algorithm, which needs one number a key).
 */
export function rateLimit({ requests, windowMs }: RateLimit, clock: Clock): Handler {
  const intervalMs = windowMs / requests;
  /** When each key's past requests will have been paid for. */
  const paidAt = new Map<string, number>();
  return (_req, res, next) => {
    const key = String(res.apiKeyId);
    const now = clock.now();
    const start = Math.max(paidAt.get(key) ?? now, now);
    const waitMs = start + intervalMs - now - windowMs;
    if (waitMs > 0) {
      const retryAfter = Math.ceil(waitMs / 1000);
      throw refuse(429, 226, `More than ${requests} requests in ${windowMs / 1000} s.`, { retryAfter });
    }
    if (!paidAt.has(key) && paidAt.size >= MAX_KEYS) forgetIdle(paidAt, now);
    paidAt.set(key, start + intervalMs);
    next();
  };
}

function forgetIdle(paidAt: Map<string, number>, now: number): void {
  for (const [key, time] of paidAt) if (time <= now) paidAt.delete(key);
}
