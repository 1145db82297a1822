import type { Binding } from '../../management/resources/acl-rule.ts';

/** On whose behalf a session acts. */
export interface Credential {
  /** `cr_…` */
  readonly id: string;
  /** `bot_…`, or null when nobody owns it. */
  readonly ownerId: string | null;
  /**
   * Whether the credential allows a binding now.
   *
   * @throws {RpcError} when it does not, or no longer
   */
  authorize(binding: Binding): void;
}

/** Decides who may start a session. */
export interface AgentAccess {
  /**
   * @param authtoken as the agent sent it, empty when it sent none
   * @throws {RpcError} when there is no credential for it
   */
  authenticate(authtoken: string): Promise<Credential>;
}
