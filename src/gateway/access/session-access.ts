import { RpcError } from '../../agent-protocol/rpc.ts';
import type { Binding } from '../../management/resources/acl-rule.ts';
import type { Refusal } from '../../management/resources/refusal.ts';
import type { Credential } from '../endpoints/endpoint-owner.ts';
import type { AgentAccess } from '../sessions/agent-link.ts';
import { type AuthtokenAcl, isRefusal } from './authtoken-acl.ts';

/** Decides about names below sites of devices, and keeps them; see `SiteNameGrants`. */
export interface NameClaims {
  judge(credentialId: string, hostname: string, isPermitted: boolean): Refusal | 'grantable' | null;
  keep(credentialId: string, hostname: string, isPermitted: boolean): Promise<Refusal | null>;
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
    const authorize = (binding: Binding) => {
      const denied = accounts.authorize(id, binding);
      if (denied) throw rpcError(denied);
    };
    return {
      id,
      ownerId,
      authorize,
      authorizeWanted: (binding) => {
        const verdict =
          binding.kind === 'hostname' ? names.judge(id, binding.hostname, accounts.isPermitted(id, binding)) : null;
        if (verdict === null) authorize(binding);
        else if (verdict !== 'grantable') throw rpcError(verdict);
      },
      keep: async (binding) => {
        if (binding.kind !== 'hostname') return;
        const refused = await names.keep(id, binding.hostname, accounts.isPermitted(id, binding));
        if (refused) throw rpcError(refused);
      },
      hasRules: () => accounts.hasRules(id),
      portsOf: (host) => accounts.portsOf(id, host),
    };
  }
}

function rpcError({ code, text }: Refusal): RpcError {
  return new RpcError(`ERR_NGROK_${code}`, text);
}
