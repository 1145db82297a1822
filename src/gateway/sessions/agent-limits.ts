import { RpcError } from '../../agent-protocol/rpc-error.ts';
import type { AgentLimits } from '../../settings/gateway-limits.ts';

export const AGENT_LIMITS: AgentLimits = {
  sessions: 1000,
  endpoints: 10_000,
  // The SDK (1.7.0) drops its session with all connections at the 513th live stream, RPCs and heartbeats included.
  connections: 500,
  optionBytes: 64 * 1_048_576,
  policyShare: 1,
};

/** Memory that every endpoint takes besides its options. */
const ENDPOINT_BYTES = 1024;

/**
 * Limits the policies, as they were sent and compiled, the certificates and other options that the gateway keeps for
 * agents. All sessions of an authtoken share one allowance, because their number is not limited.
 */
export class OptionBytes {
  readonly #taken = new Map<string, number>();

  constructor(private readonly limit: number) {}

  /**
   * Takes bytes from the allowance of an authtoken.
   *
   * @param credentialId id of the authtoken
   * @param size bytes of the request, or of its compiled policy
   * @returns a function that returns them
   * @throws {RpcError} when the allowance is used up
   */
  take(credentialId: string, size: number, overhead = ENDPOINT_BYTES): () => void {
    let bytes = size + overhead;
    const taken = this.#taken.get(credentialId) ?? 0;
    if (taken + bytes > this.limit) {
      throw new RpcError(
        'ERR_NGROK_350',
        `option limit reached: all endpoints of an authtoken can have ${this.limit} bytes of options and policies; unbind some`,
      );
    }
    this.#taken.set(credentialId, taken + bytes);
    return () => {
      const left = (this.#taken.get(credentialId) ?? 0) - bytes;
      bytes = 0;
      if (left > 0) this.#taken.set(credentialId, left);
      else this.#taken.delete(credentialId);
    };
  }
}
