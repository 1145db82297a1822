import { RpcError } from '../../agent-protocol/rpc-error.ts';
import type { Refusal } from '../../management/resources/refusal.ts';
import type { Credential } from '../endpoints/endpoint-owner.ts';
import type { AgentAccess } from '../sessions/agent-access.ts';
import { type AuthtokenAcl, isRefusal } from './authtoken-acl.ts';

/** Keeps the names below sites of devices. */
export interface NameClaims {
  /**
   * Called before an authtoken binds a public name.
   *
   * @param isPermitted whether its rules allow the name
   * @returns why a device cannot have it; null otherwise
   */
  claim(credentialId: string, hostname: string, isPermitted: boolean): Promise<Refusal | null>;
}

export class SessionAccess implements AgentAccess {
  constructor(
    private readonly accounts: AuthtokenAcl,
    private readonly names: NameClaims,
  ) {}

  async authenticate(authtoken: string): Promise<Credential> {
    const { accounts, names } = this;
    const answer = accounts.authenticate(authtoken);
    if (isRefusal(answer)) throw rpcError(answer);
    const { id, ownerId } = answer;
    return {
      id,
      ownerId,
      acquire: async (binding) => {
        if (binding.kind !== 'hostname') return;
        const refused = await names.claim(id, binding.hostname, accounts.isPermitted(id, binding));
        if (refused) throw rpcError(refused);
      },
      authorize: (binding) => {
        const denied = accounts.authorize(id, binding);
        if (denied) throw rpcError(denied);
      },
      hasRules: () => accounts.hasRules(id),
      portsOf: (host) => accounts.portsOf(id, host),
    };
  }
}

function rpcError({ code, text }: Refusal): RpcError {
  return new RpcError(`ERR_NGROK_${code}`, text);
}
