import type { Request } from 'express';
import type { ApiError } from '../../lib/errors.ts';
import type { Clock } from '../../lib/time/clock.ts';
import { type RateLimit, RequestRate } from '../../lib/time/token-bucket.ts';
import { credentialOf } from '../access/authtoken-authentication.ts';
import type { CredentialRow } from '../store/accounts.ts';
import type { ApiContext } from './api-context.ts';
import { type FailedAttempts, type RefusesAddress, refuseSlowly } from './authentication.ts';
import type { Handler } from './handler.ts';
import { refuse } from './request.ts';

/** What routes for agents need besides the context. */
export interface AgentRoutes {
  attempts: FailedAttempts;
  isRefused: RefusesAddress;
  clock: Clock;
  /** Run before a request is handled, and read its body. */
  withBody: Handler[];
}

/** @returns whose authtoken it is. @throws {ApiError} when it is not valid here, or has asked too often */
export type FindsAgent = (authtoken: string, req: Request) => Promise<CredentialRow>;

/**
 * Makes the check of authtokens in requests to the management API.
 *
 * @param limit for the requests of one authtoken
 * @param what they ask for, for messages
 */
export function agentAccess(
  { store }: Pick<ApiContext, 'store'>,
  { attempts, isRefused, clock }: Omit<AgentRoutes, 'withBody'>,
  limit: RateLimit,
  what: string,
): FindsAgent {
  const rate = new RequestRate(limit, () => clock.now());
  return async (authtoken, { ip, socket }) => {
    const found = credentialOf(authtoken, store);
    if ('code' in found) return refuseSlowly(attempts, refuse(403, found.code, found.text), ip);
    if (isRefused('agent', socket)) throw refuse(403, 115, 'an IP restriction does not allow agents at your address');
    const retryAfter = rate.take(found.id);
    if (retryAfter !== null) throw tooOften(what, retryAfter);
    return found;
  };
}

function tooOften(what: string, retryAfter: number): ApiError {
  return refuse(429, 226, `the authtoken asks for ${what} too often; wait ${retryAfter} s`, { retryAfter });
}
