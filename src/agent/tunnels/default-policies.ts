import { isDeepStrictEqual } from 'node:util';
import { OperatorError } from '../../lib/errors.ts';
import type { Limiter } from '../../lib/limiter.ts';
import { defaultsFor, type PolicyInput } from '../../traffic-policy/document.ts';
import type { Tunnel } from './tunnel.ts';
import type { TunnelChanges } from './tunnel-changes.ts';
import type { TunnelList } from './tunnel-list.ts';
import type { TunnelOpener } from './tunnel-opener.ts';
import type { TunnelSupervisor } from './tunnel-supervisor.ts';

/** The policies of tunnels without their own; changed ones apply to running tunnels. */
export class DefaultPolicies {
  constructor(
    private readonly own: {
      /** Has those in force. */
      opener: Pick<TunnelOpener, 'defaults'>;
      list: Pick<TunnelList, 'values'>;
      /** False for a tunnel that is being removed: it must not be opened again. */
      isActive: (supervisor: TunnelSupervisor) => boolean;
      /** Opens a tunnel again; resolves to why it is not online now. */
      reopen: TunnelChanges['reopen'];
      limiter: Limiter;
    },
  ) {}

  /** The policy in force on a tunnel: its own, else the defaults. */
  on({ policy, protocol }: Tunnel): object {
    // Tunnels without their own are bound again whenever the defaults change, so this is what they run.
    if (policy !== null) return policy;
    const { defaults } = this.own.opener;
    return protocol === 'tcp' || protocol === 'tls' ? defaultsFor(protocol, defaults) : defaults;
  }

  /**
   * Puts new defaults in force. Closes every tunnel without a policy of its own and opens it again, one of each protocol
   * before the others.
   *
   * @throws {OperatorError} when the gateway refuses them on one of those; then the old defaults are in force again
   */
  async useDefaults(defaults: PolicyInput): Promise<void> {
    const { opener, list, isActive, reopen, limiter } = this.own;
    const before = opener.defaults;
    if (isDeepStrictEqual(defaults, before)) return;
    opener.defaults = defaults;
    const affected = [...list.values()].filter(
      (one) => one.tunnel.policy === null && one.status.state === 'online' && isActive(one),
    );
    const firsts = new Map(affected.map((one) => [one.tunnel.protocol, one]));
    for (const first of firsts.values()) {
      const problem = await reopen(first);
      // A lost session says nothing about the policies.
      if (problem === null || problem.code === 'ERR_AGENT_OFFLINE') continue;
      opener.defaults = before;
      await Promise.all([...firsts.values()].map((tried) => reopen(tried)));
      throw new OperatorError(`default policies refused by the gateway on ${first.url}: ${problem.message}`);
    }
    const others = affected.filter((one) => firsts.get(one.tunnel.protocol) !== one);
    await Promise.all(others.map((one) => limiter.run(() => reopen(one))));
    // Tunnels may have failed because of the old defaults.
    for (const one of list.values()) if (one.status.state === 'failed') one.retryNow();
  }
}
