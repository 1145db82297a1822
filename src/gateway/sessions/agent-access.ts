import type { Credential } from '../endpoints/endpoint-owner.ts';

/** Decides who may start a session. */
export interface AgentAccess {
  /**
   * @param authtoken as the agent sent it; empty when it sent none
   * @throws {RpcError} when the authtoken is unknown, revoked or missing
   */
  authenticate(authtoken: string): Promise<Credential>;
}
