import type { Clock } from '../../lib/time/clock.ts';
import { type RateLimit, RequestRate } from '../../lib/time/request-rate.ts';
import type { Handler } from './handler.ts';
import { refuse } from './refuse.ts';

/** Limits the requests of each API key. */
export function rateLimit(limit: RateLimit, clock: Clock): Handler {
  const rate = new RequestRate(limit, () => clock.now());
  return (_req, res, next) => {
    const retryAfter = rate.take(String(res.locals.apiKeyId));
    if (retryAfter === null) return next();
    const text = `rate limit exceeded: ${limit.requests} requests in ${limit.windowMs / 1000} s; wait ${retryAfter} s`;
    throw refuse(429, 226, text, { retryAfter });
  };
}
