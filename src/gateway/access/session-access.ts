import { RpcError } from '../../agent-protocol/rpc-error.ts';
import type { Refusal } from '../../management/resources/refusal.ts';
import type { Credential } from '../endpoints/endpoint-owner.ts';
import type { AgentAccess } from '../sessions/agent-access.ts';
import { type AuthtokenAcl, isRefusal } from './authtoken-acl.ts';

export class SessionAccess implements AgentAccess {
  constructor(private readonly accounts: AuthtokenAcl) {}

  async authenticate(authtoken: string): Promise<Credential> {
    const { accounts } = this;
    const answer = accounts.authenticate(authtoken);
    if (isRefusal(answer)) throw rpcError(answer);
    const { id, ownerId } = answer;
    return {
      id,
      ownerId,
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
