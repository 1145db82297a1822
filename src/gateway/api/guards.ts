import { compressJson } from '../../lib/http/express-app.ts';
import type { Clock } from '../../lib/time/clock.ts';
import { type RateLimit, RequestRate } from '../../lib/time/token-bucket.ts';
import type { Handler } from './handler.ts';
import { type BodyLimits, jsonObjectBody } from './json-object-body.ts';
import { badRequest, refuse, requestQuery } from './request.ts';

/** The checks that run before an operation: API key, rate limit, version, query. */
export interface Guards {
  /** For lists, which parse their own query. */
  list: Handler[];
  plain: Handler[];
  withBody: Handler[];
}

export function createGuards(
  authentication: Handler,
  clock: Clock,
  { rateLimit: rateLimits, body }: { rateLimit: RateLimit | null; body: BodyLimits },
): Guards & { unversioned: Handler[] } {
  const limit = rateLimits ? [rateLimit(rateLimits, clock)] : [];
  const known = [authentication, ...limit, compressForPages];
  const list = [...known, requireVersion];
  const plain = [...list, noQuery];
  // Prometheus cannot always send custom headers.
  return { unversioned: known, list, plain, withBody: [...plain, jsonObjectBody(body)] };
}

/** Pages load lists over slow networks. To clients with an API key, answers stay as they are. */
const compressForPages: Handler = (req, res, next) => {
  if (req.headers.authorization === undefined) compressJson(req, res, next);
  else next();
};

export const noQuery: Handler = (req, _res, next) => {
  if (requestQuery(req).size > 0) throw badRequest({ code: 231, text: 'this operation takes no query parameters' });
  next();
};

function rateLimit(limit: RateLimit, clock: Clock): Handler {
  const rate = new RequestRate(limit, () => clock.now());
  return (_req, res, next) => {
    const retryAfter = rate.take(String(res.locals.apiKeyId));
    if (retryAfter === null) return next();
    const text = `rate limit exceeded: ${limit.requests} requests in ${limit.windowMs / 1000} s; wait ${retryAfter} s`;
    throw refuse(429, 226, text, { retryAfter });
  };
}

/** The API's own header, and the header that ngrok's clients send. */
const HEADERS = ['service-version', 'ngrok-version'];
const SUPPORTED = '2';

const requireVersion: Handler = (req, _res, next) => {
  const sent = HEADERS.map((name) => req.headers[name]).filter((value) => value !== undefined);
  if (sent.length === 0) {
    throw refuse(400, 218, `no API version; send the header Service-Version: ${SUPPORTED}`);
  }
  if (sent.some((value) => value !== SUPPORTED)) {
    throw refuse(400, 217, `API version not supported; send the header Service-Version: ${SUPPORTED}`);
  }
  next();
};
