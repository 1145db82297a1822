import type { IncomingMessage } from 'node:http';
import { BoundedMap } from '../../lib/bounded-map.ts';
import type { ApiError } from '../../lib/errors.ts';
import { trimSpace } from '../../lib/http/header-fields.ts';
import { parseToken, type TokenParts } from '../../lib/ids.ts';
import { clientNetwork } from '../../lib/network/ip-address.ts';
import { backoffCeiling } from '../../lib/time/backoff.ts';
import type { Clock } from '../../lib/time/clock.ts';
import type { IpRestrictionType } from '../../management/resources/ip-policy.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { FailedAttemptSettings } from '../context/gateway-options.ts';
import type { Store } from '../store/store.ts';
import { secretMatches } from '../store/tokens.ts';
import type { Handler } from './handler.ts';
import { refuse } from './request.ts';

/** Requires a valid API key, or the session of a browser that signed in; stores the key's id in `res.locals`. */
export function requireApiKey(
  { store, catchUp }: Pick<GatewayContext, 'store' | 'catchUp'>,
  attempts: FailedAttempts,
  holderOf: (req: IncomingMessage) => string | null,
  isRefused: RefusesAddress,
): Handler {
  return async (req, res, next) => {
    const { authorization } = req.headers;
    const holder = authorization === undefined ? holderOf(req) : null;
    let result = holder ?? identify(store, authorization);
    if (typeof result !== 'string' && authorization !== undefined) {
      // A command beside another gateway uses the key that it has just made.
      await catchUp();
      result = identify(store, authorization);
    }
    if (typeof result !== 'string') return refuseSlowly(attempts, result, req.ip);
    if (authorization !== undefined && isRefused('api', req.socket)) throw callerRefused(220, 'API');
    res.locals.apiKeyId = result;
    next();
  };
}

export type RefusesAddress = (
  type: IpRestrictionType,
  remote: { readonly remoteAddress?: string | undefined },
) => boolean;

export function callerRefused(code: number, what: string): ApiError {
  const advice = 'change the restriction from an address that it allows, or on the gateway at 127.0.0.1';
  return refuse(403, code, `an IP restriction does not allow your address to use the ${what}: ${advice}`);
}

/** Refuses after a delay for clients that keep failing. */
export async function refuseSlowly(
  attempts: FailedAttempts,
  refusal: ApiError,
  address: string | undefined,
): Promise<never> {
  await attempts.slowDown(address ?? '');
  throw refusal;
}

/** The id of the API key that a request presents, or why it is refused. Never repeats the presented value. */
export function identify(store: Store, authorization: string | undefined): string | ApiError {
  if (authorization === undefined) {
    return refuse(403, 200, 'no API key; send the header Authorization: Bearer <API key>');
  }
  const value = /^Bearer +([\x21-\x7e]+)$/i.exec(trimSpace(authorization))?.[1];
  if (value === undefined) {
    return refuse(403, 201, 'malformed Authorization header; send Authorization: Bearer <API key>');
  }
  if (/^ak_[0-9A-Za-z]{1,27}$/.test(value)) {
    return refuse(403, 208, 'this is the id of an API key; send the key, which was shown once when it was created');
  }
  const parts = parseToken(value);
  if (!parts) return refuse(403, 202, 'malformed API key');
  return keyOf(store, parts) ?? (isAuthtoken(store, parts) ? notForAgents() : unknownKey());
}

function keyOf(store: Store, { ksuid, secret }: TokenParts): string | null {
  const key = store.apiKeys.get(`ak_${ksuid}`);
  return key && secretMatches(secret, key.secret_hash) && store.botUsers.isActive(key.owner_id) ? key.id : null;
}

export function isActiveKey(store: Store, id: string): boolean {
  const key = store.apiKeys.get(id);
  return key !== null && store.botUsers.isActive(key.owner_id);
}

function isAuthtoken(store: Store, { ksuid, secret }: TokenParts): boolean {
  const credential = store.credentials.get(`cr_${ksuid}`);
  return credential !== null && secretMatches(secret, credential.secret_hash);
}

function notForAgents(): ApiError {
  return refuse(403, 206, 'this is an authtoken, which only agents use; send an API key');
}

function unknownKey(): ApiError {
  return refuse(403, 203, 'unknown API key: it does not exist, was deleted, or its bot user is not active');
}

/** Clients tracked at once. An attacker with more addresses is not delayed. */
const MAX_CLIENTS = 10_000;
/** Responses delayed at once: a flood of failures must not pile up sockets. */
const MAX_DELAYED = 64;

/** Delays responses to clients that keep sending wrong API keys. Requests with a valid key are never delayed. */
export class FailedAttempts {
  readonly #failures = new BoundedMap<string, { count: number; since: number }>(MAX_CLIENTS);
  #delayed = 0;

  constructor(
    private readonly settings: FailedAttemptSettings,
    private readonly clock: Clock,
  ) {}

  /** Waits until a failure may be answered. @throws {ApiError} 429 when too many responses are delayed already */
  async slowDown(address: string): Promise<void> {
    const delayMs = this.#delayAfter(this.#record(clientNetwork(address)));
    if (delayMs === 0) return;
    if (this.#delayed >= MAX_DELAYED) {
      const retryAfter = Math.ceil(this.settings.maxDelayMs / 1000);
      throw refuse(429, 226, `too many failed authentications; wait ${retryAfter} s`, { retryAfter });
    }
    this.#delayed += 1;
    try {
      await this.clock.sleep(delayMs);
    } finally {
      this.#delayed -= 1;
    }
  }

  #record(client: string): number {
    const now = this.clock.now();
    const known = this.#failures.get(client);
    const recent = known && now - known.since < this.settings.windowMs ? known : { count: 0, since: now };
    recent.count += 1;
    this.#failures.set(client, recent);
    return recent.count;
  }

  #delayAfter(failures: number): number {
    const { free, delayMs, maxDelayMs } = this.settings;
    return failures <= free ? 0 : backoffCeiling(failures - free - 1, { baseMs: delayMs, maxMs: maxDelayMs });
  }
}
