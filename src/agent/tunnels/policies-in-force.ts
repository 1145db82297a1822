import { isDeepStrictEqual } from 'node:util';
import { OperatorError } from '../../lib/errors.ts';
import type { Limiter } from '../../lib/limiter.ts';
import { defaultsFor, type PolicyInput } from '../../traffic-policy/document.ts';
import type { Tunnel, TunnelStatus } from './tunnel.ts';
import type { TunnelSupervisor } from './tunnel-supervisor.ts';

export interface PoliciesInForceOptions {
  /** In force on every tunnel without a policy of its own. */
  defaults: PolicyInput;
  supervisors: () => Iterable<TunnelSupervisor>;
  /** False for a tunnel that is being removed: it must not be opened again. */
  isActive: (supervisor: TunnelSupervisor) => boolean;
  limiter: Limiter;
}

/** The policies that tunnels run with; applies changed default policies to running tunnels. */
export class PoliciesInForce {
  #defaults: PolicyInput;

  constructor(private readonly options: PoliciesInForceOptions) {
    this.#defaults = options.defaults;
  }

  get defaults(): PolicyInput {
    return this.#defaults;
  }

  /** The policy in force on a tunnel: its own, else the defaults. */
  on({ policy, protocol }: Tunnel): object {
    // Tunnels without their own are bound again whenever the defaults change, so this is what they run.
    if (policy !== null) return policy;
    return protocol === 'tcp' || protocol === 'tls' ? defaultsFor(protocol, this.#defaults) : this.#defaults;
  }

  /**
   * Puts new defaults in force. Closes every tunnel without a policy of its own and opens it again, one of each protocol
   * before the others.
   *
   * @throws {OperatorError} when the gateway refuses them on one of those; then the old defaults are in force again
   */
  async useDefaults(defaults: PolicyInput): Promise<void> {
    if (isDeepStrictEqual(defaults, this.#defaults)) return;
    const { supervisors, isActive, limiter } = this.options;
    const before = this.#defaults;
    this.#defaults = defaults;
    const affected = [...supervisors()].filter(
      (one) => one.tunnel.policy === null && one.status.state === 'online' && isActive(one),
    );
    const firsts = new Map(affected.map((one) => [one.tunnel.protocol, one]));
    for (const first of firsts.values()) {
      const problem = await this.#reopen(first);
      // A lost session says nothing about the policies.
      if (problem === null || problem.code === 'ERR_AGENT_OFFLINE') continue;
      this.#defaults = before;
      await Promise.all([...firsts.values()].map((tried) => this.#reopen(tried)));
      throw new OperatorError(`default policies refused by the gateway on ${first.url}: ${problem.message}`);
    }
    const others = affected.filter((one) => firsts.get(one.tunnel.protocol) !== one);
    await Promise.all(others.map((one) => limiter.run(() => this.#reopen(one))));
    // Tunnels may have failed because of the old defaults.
    for (const one of supervisors()) if (one.status.state === 'failed') one.retryNow();
  }

  /** @returns why the tunnel is not online now; null when it is, or was removed */
  async #reopen(supervisor: TunnelSupervisor): Promise<TunnelStatus['lastError']> {
    const { isActive } = this.options;
    if (!isActive(supervisor)) return null;
    try {
      return await supervisor.reopen();
    } finally {
      // A removal that started meanwhile closes the endpoint, and restarts supervision if it fails.
      if (isActive(supervisor)) supervisor.start();
    }
  }
}
