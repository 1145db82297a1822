import { RpcError } from '../../agent-protocol/rpc-error.ts';
import type { AgentLimits } from '../../settings/gateway-limits.ts';

export const AGENT_LIMITS: AgentLimits = { sessions: 1000, endpoints: 10_000, optionBytes: 64 * 1_048_576 };

/** What the gateway keeps of an endpoint besides, however little was said of it. */
const ENDPOINT_BYTES = 1024;

/**
 * Counts what the gateway keeps for agents: policies, certificates and other options, which take some ten times as much
 * memory when they are ready to run. An authtoken's sessions share an allowance, for nobody counts them.
 */
export class OptionBytes {
  readonly #limit: number;
  readonly #taken = new Map<string, number>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  /**
   * @param credentialId whose authtoken it is
   * @param size bytes of the request
   * @returns gives them back
   * @throws {RpcError} when there is no room for them
   */
  take(credentialId: string, size: number): () => void {
    let bytes = size + ENDPOINT_BYTES;
    const taken = this.#taken.get(credentialId) ?? 0;
    if (taken + bytes > this.#limit) {
      throw new RpcError(
        'ERR_NGROK_350',
        `the endpoints of one authtoken can take ${this.#limit} bytes of options and policies in all`,
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
