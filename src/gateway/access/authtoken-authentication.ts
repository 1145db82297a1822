import type { RpcError } from '../../agent-protocol/rpc.ts';
import { parseToken } from '../../lib/ids.ts';
import type { Refusal } from '../../management/resources/refusal.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { SiteNameGrants } from '../devices/site-name-grants.ts';
import type { OwnerCredential } from '../endpoints/endpoint-owner.ts';
import type { AgentAccess } from '../sessions/agent-link.ts';
import { FormerDeviceRefused } from '../sessions/refusal-log.ts';
import type { CredentialRow } from '../store/accounts.ts';
import { secretMatches } from '../store/tokens.ts';
import { type AuthtokenAcl, AuthtokenCredential, INACTIVE_OWNER, rpcError } from './authtoken-acl.ts';

export class AuthtokenAuthentication implements AgentAccess {
  /** A fleet with one authtoken reads the same row a thousand times when it reconnects. */
  readonly #known: AuthtokenRows;

  constructor(
    private readonly context: Pick<GatewayContext, 'store' | 'catchUp'>,
    private readonly acl: AuthtokenAcl,
    private readonly names: Pick<SiteNameGrants, 'judge' | 'keep'>,
    private readonly isRefused: (remoteAddress: string) => boolean,
  ) {
    const { database, credentials, botUsers } = context.store;
    const isActive = database.untilCommit((id) => botUsers.isActive(id));
    this.#known = {
      credentials: { get: database.untilCommit((id) => credentials.get(id)) },
      botUsers: { isActive: (id) => id === null || isActive(id) },
    };
  }

  async authenticate(authtoken: string, remoteAddress: string): Promise<OwnerCredential> {
    let answer = credentialOf(authtoken, this.#known);
    if ('code' in answer) {
      await this.context.catchUp();
      answer = credentialOf(authtoken, this.#known);
    }
    if ('code' in answer) throw this.#refusalOf(authtoken, answer);
    if (this.isRefused(remoteAddress)) {
      throw rpcError({ code: 115, text: `an IP restriction does not allow agents at ${remoteAddress}` });
    }
    return new AuthtokenCredential(answer.id, answer.owner_id, this.acl, this.names);
  }

  /** The secret of a deleted authtoken is unknown: only the log learns whose it was. */
  #refusalOf(authtoken: string, refusal: Refusal): RpcError {
    const parts = parseToken(authtoken);
    const device = parts && this.context.store.devices.byFormerCredential(`cr_${parts.ksuid}`);
    return device ? new FormerDeviceRefused(rpcError(refusal), device) : rpcError(refusal);
  }
}

interface AuthtokenRows {
  readonly credentials: { get(id: string): CredentialRow | null };
  readonly botUsers: { isActive(id: string | null): boolean };
}

/** The credential of an authtoken, empty when the agent sent none; or a refusal, which never repeats the authtoken. */
export function credentialOf(authtoken: string, { credentials, botUsers }: AuthtokenRows): CredentialRow | Refusal {
  if (authtoken === '') return { code: 4018, text: 'an authtoken is required' };
  const parts = parseToken(authtoken);
  if (!parts) return { code: 105, text: 'malformed authtoken' };
  const row = credentials.get(`cr_${parts.ksuid}`);
  if (!row || !secretMatches(parts.secret, row.secret_hash)) return { code: 107, text: 'unknown authtoken' };
  return botUsers.isActive(row.owner_id) ? row : INACTIVE_OWNER;
}
