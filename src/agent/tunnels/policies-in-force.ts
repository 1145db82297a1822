import { isDeepStrictEqual } from 'node:util';
import { OperatorError } from '../../lib/errors.ts';
import type { Limiter } from '../../lib/limiter.ts';
import type { PolicyInput } from '../../traffic-policy/document.ts';
import type { Tunnel, TunnelStatus } from './tunnel.ts';
import type { TunnelSupervisor } from './tunnel-supervisor.ts';

export interface PoliciesInForceOptions {
  /** In force on every tunnel that has no policy of its own. */
  defaults: PolicyInput;
  /** All tunnels, now. */
  keepers: () => Iterable<TunnelSupervisor>;
  /** Whether a tunnel is there and is to stay: one that is being removed is not opened anew. */
  stays: (keeper: TunnelSupervisor) => boolean;
  limiter: Limiter;
}

/** The policies that tunnels run with, and how other defaults come in force while they run. */
export class PoliciesInForce {
  readonly #options: PoliciesInForceOptions;
  #defaults: PolicyInput;

  constructor(options: PoliciesInForceOptions) {
    this.#options = options;
    this.#defaults = options.defaults;
  }

  get defaults(): PolicyInput {
    return this.#defaults;
  }

  /** The policy that is in force on a tunnel: its own, else the defaults. */
  on({ policy }: Tunnel): object {
    // Whenever the defaults change, every tunnel without its own is bound anew: what is shown is what runs.
    return policy ?? this.#defaults;
  }

  /**
   * Puts other defaults in force: every tunnel without a policy of its own is closed and opened anew, one of each
   * protocol before the others.
   *
   * @throws {OperatorError} when the gateway refuses them on one of these; then the old ones are in force again
   */
  async useDefaults(defaults: PolicyInput): Promise<void> {
    if (isDeepStrictEqual(defaults, this.#defaults)) return;
    const { keepers, stays, limiter } = this.#options;
    const before = this.#defaults;
    this.#defaults = defaults;
    const affected = [...keepers()].filter(
      (keeper) => keeper.tunnel.policy === null && keeper.status.state === 'online' && stays(keeper),
    );
    const firsts = new Map(affected.map((keeper) => [keeper.tunnel.protocol, keeper]));
    for (const keeper of firsts.values()) {
      const problem = await this.#reopen(keeper);
      // The session broke: that says nothing about the policies.
      if (problem === null || problem.code === 'ERR_AGENT_OFFLINE') continue;
      this.#defaults = before;
      await Promise.all([...firsts.values()].map((tried) => this.#reopen(tried)));
      throw new OperatorError(`the gateway refuses the default policies on ${keeper.url}: ${problem.message}`);
    }
    const others = affected.filter((keeper) => firsts.get(keeper.tunnel.protocol) !== keeper);
    await Promise.all(others.map((keeper) => limiter.run(() => this.#reopen(keeper))));
    // Others may have been refused for the old ones.
    for (const keeper of keepers()) if (keeper.status.state === 'failed') keeper.tryAgain();
  }

  /** @returns why the tunnel is not up now; null when it is, or is no more */
  async #reopen(keeper: TunnelSupervisor): Promise<TunnelStatus['lastError']> {
    const { stays } = this.#options;
    if (!stays(keeper)) return null;
    try {
      return await keeper.reopen();
    } finally {
      // A removal that has come meanwhile closes the endpoint, and keeps the tunnel up if it fails.
      if (stays(keeper)) keeper.keep();
    }
  }
}
