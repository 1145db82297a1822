import { createHash } from 'node:crypto';
import { z } from 'zod';
import { durationBetween } from '../action-config.ts';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import { type Expression, ExpressionError } from '../cel/expression.ts';
import { jsonOf } from '../cel/values.ts';
import type { PolicyScope } from '../policy-subjects.ts';
import { type RateDecision, SlidingWindow } from '../state/sliding-window.ts';
import type { PreparedAction } from '../steps.ts';
import { NO_ERROR } from './restrict-ips.ts';

const RateLimitConfig = z.strictObject({
  name: z.string().min(1).max(1023),
  algorithm: z.enum(['sliding_window']),
  capacity: z.int().min(1).max(2_000_000_000),
  rate: durationBetween(60_000, 86_400_000).refine((ms) => ms % 10_000 === 0, {
    error: 'must be a multiple of 10 s',
    params: { ngrok: 'ERR_NGROK_2204' },
  }),
  bucket_key: z.array(z.string()).min(1).max(10),
  enforce: z.boolean().optional(),
});

const EMPTY = Buffer.alloc(0);
const TOO_MANY_REQUESTS = 429;

/** Keys stay in memory; longer ones are replaced with a hash. */
const MAX_KEY = 128;

/** Limits the number of requests in a window of time, for each value of the key. */
export function rateLimit(config: unknown, context: ActionContext): PreparedAction {
  const { name, capacity, rate, bucket_key: texts, enforce = true } = parseConfig(RateLimitConfig, config);
  const keys = texts.map((text, at) => context.expression(text, `config.bucket_key[${at}]`));
  const { ports } = context;
  const window = ports.state.keep(
    SlidingWindow,
    [name, capacity, rate, texts],
    () => new SlidingWindow(capacity, rate),
  );
  return {
    ends: false,
    on_http_request: () => (request) => {
      if (request.isProbe) return undefined;
      const key = keyOf(keys, context.scopeOf(request));
      const admission = window.admit(key.length > MAX_KEY ? hashed(key) : key, ports.clock.now());
      const limited = !admission.admitted;
      context.record(request, 'rate_limit', {
        limited,
        bucket_key: key,
        error: limited ? { code: '', message: 'rate limit reached' } : NO_ERROR,
      });
      return limited && enforce ? refusedUntil(admission) : undefined;
    },
  };
}

function refusedUntil({ retryAfterMs }: RateDecision) {
  const headers = ['retry-after', String(Math.ceil(retryAfterMs / 1000))];
  return { kind: 'answer', status: TOO_MANY_REQUESTS, headers, body: EMPTY, refused: true } as const;
}

function keyOf(keys: readonly Expression[], scope: PolicyScope): string {
  return JSON.stringify(keys.map((key) => partOf(key, scope)));
}

/** A missing header is a key like any other: all requests without it share one bucket. */
function partOf(key: Expression, scope: PolicyScope) {
  try {
    return jsonOf(key.evaluate(scope));
  } catch (error) {
    if (error instanceof ExpressionError) return null;
    throw error;
  }
}

function hashed(key: string): string {
  return createHash('sha256').update(key).digest('base64');
}
