import { Refusal } from '../../agent-protocol/refusal.ts';
import type { Refusal as CodedRefusal } from '../../management/resources/refusal.ts';
import type { AgentAccess, Credential } from '../sessions/agent-access.ts';
import { type AuthtokenAcl, isRefusal } from './authtoken-acl.ts';

/** What the accounts allow, in the form in which sessions ask. */
export class SessionAccess implements AgentAccess {
  constructor(private readonly accounts: AuthtokenAcl) {}

  async authenticate(authtoken: string): Promise<Credential> {
    const { accounts } = this;
    const answer = accounts.authenticate(authtoken);
    if (isRefusal(answer)) throw refusal(answer);
    const { id, ownerId } = answer;
    return {
      id,
      ownerId,
      authorize: (binding) => {
        const denied = accounts.authorize(id, binding);
        if (denied) throw refusal(denied);
      },
    };
  }
}

function refusal({ code, text }: CodedRefusal): Refusal {
  return new Refusal(`ERR_NGROK_${code}`, text);
}
