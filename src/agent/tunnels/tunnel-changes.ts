import { isDeepStrictEqual } from 'node:util';
import { displayUpstream } from '../../lib/network/upstream-address.ts';
import { toTrafficPolicy } from '../../traffic-policy/document.ts';
import { type Connector, changeableOptionsOf } from '../connectors/connector.ts';
import type { AgentContext } from '../context/agent-context.ts';
import { AgentError, RETRY_AFTER_S } from '../errors/agent-error.ts';
import type { TrafficCapture } from '../upstreams/traffic-counters.ts';
import type { UpstreamGuard } from '../upstreams/upstream-guard.ts';
import type { UpstreamHealth } from '../upstreams/upstream-health.ts';
import { checkCaFile } from '../upstreams/upstream-tls.ts';
import { type ChangedMembers, requestOf, type TunnelChange, type TunnelStatus } from './tunnel.ts';
import type { TunnelList, TunnelView } from './tunnel-list.ts';
import type { TunnelReports } from './tunnel-reports.ts';
import type { TunnelSupervisor } from './tunnel-supervisor.ts';
import type { TunnelStore } from './tunnels-file.ts';

/** Changes tunnels that are open, which are closed and opened again for it. */
export class TunnelChanges {
  readonly #changing = new Set<string>();

  constructor(
    private readonly context: Pick<AgentContext, 'log'>,
    private readonly own: {
      list: TunnelList;
      reports: TunnelReports;
      guard: UpstreamGuard;
      store: TunnelStore;
      /** False for a tunnel that is being removed: it must not be opened again. */
      isActive: (supervisor: TunnelSupervisor) => boolean;
      connector: Pick<Connector, 'isOnline'>;
      requireSession: () => void;
    },
  ) {}

  /**
   * Changes the policy, the upstream of a tunnel, or how the gateway treats it. If any of it fails, the tunnel is as it was.
   *
   * @throws {ApiError} 400 for an upstream or policy that is not allowed, 404 when the tunnel is deleted meanwhile, 500 when
   *   the change cannot be saved, 503 without a session or during another change, and the gateway's refusals
   */
  async change({ tunnel }: TunnelView, { policy, forwards_to: upstream, ...options }: TunnelChange): Promise<void> {
    const { id } = tunnel;
    const { log } = this.context;
    const { list, guard, reports, requireSession } = this.own;
    const supervisor = list.get(id);
    if (!supervisor || this.#changing.has(id)) throw beingChanged();
    requireSession();
    this.#changing.add(id);
    let unresolved: AgentError | null = null;
    try {
      if (upstream) unresolved = await guard.admit(upstream);
      await checkCaFile(options);
      const change = {
        ...(policy !== undefined && { policy }),
        ...(upstream && { forwards_to: displayUpstream(upstream) }),
        ...options,
      };
      if (!(await this.#apply(supervisor, change))) return;
    } finally {
      this.#changing.delete(id);
    }
    reports.changed(supervisor.tunnel);
    if (unresolved) reports.health(supervisor)?.failed(unresolved, false);
    log.info({ url: supervisor.url, upstream: supervisor.tunnel.forwards_to }, 'tunnel changed');
  }

  /**
   * Captures what the connections of a tunnel carry, or no longer (null). If they bypass the agent, the tunnel is closed and
   * opened again through it, where it stays until it is opened the next time: ending that at once would interrupt clients
   * again.
   *
   * @throws {AgentError} 503 while the tunnel is being changed
   */
  async captureBy(id: string, capture: (() => TrafficCapture) | null): Promise<void> {
    if (capture !== null && this.#changing.has(id)) throw beingChanged();
    this.own.reports.counters(id)?.captureBy(capture);
    if (capture !== null) await this.#openThroughAgent(id);
  }

  /** Opens the tunnels that lead to an upstream through the agent, which can close what the upstream keeps open. */
  async relay(upstream: UpstreamHealth): Promise<void> {
    const { list, reports } = this.own;
    for (const supervisor of [...list.values()]) {
      const { id } = supervisor.tunnel;
      const isTheirs = reports.health(supervisor) === upstream && !this.#changing.has(id);
      if (isTheirs) await this.#openThroughAgent(id);
    }
  }

  /**
   * The upstream of the tunnel at a URL has closed its connection in the middle of an upload. It may have answered: the SDK
   * (1.7.0) drops an answer when it cannot write, which the agent does not.
   */
  async uploadLost(url: string): Promise<void> {
    const { log } = this.context;
    const { list, reports } = this.own;
    for (const supervisor of [...list.values()]) {
      const { id, url: own, forwards_to: upstream } = supervisor.tunnel;
      const health = reports.health(supervisor);
      if (own !== url || health === null || !reports.counters(id)?.isBypassed) continue;
      if (!health.needsRelay) log.info({ upstream }, 'upload lost; connections go through the agent from now on');
      health.needsRelay = true;
      await this.relay(health);
    }
  }

  /**
   * Closes and opens a tunnel again, unless it is being removed.
   *
   * @returns why the tunnel is not online now; null when it is, or was removed
   */
  async reopen(supervisor: TunnelSupervisor): Promise<TunnelStatus['lastError']> {
    const { isActive } = this.own;
    if (!isActive(supervisor)) return null;
    try {
      return await supervisor.reopen();
    } finally {
      // A removal that started meanwhile closes the endpoint, and restarts supervision if it fails.
      if (isActive(supervisor)) supervisor.start();
    }
  }

  async #apply(supervisor: TunnelSupervisor, change: Partial<ChangedMembers>): Promise<boolean> {
    const { isActive, store } = this.own;
    const { policy, forwards_to } = supervisor.tunnel;
    // What a failed change has set becomes undefined again, which is not stored.
    const unset = Object.fromEntries(Object.keys(change).map((member) => [member, undefined]));
    const before: ChangedMembers = { ...unset, policy, forwards_to, ...changeableOptionsOf(supervisor.tunnel) };
    const after: ChangedMembers = { ...before, ...change };
    const request = requestOf({ ...supervisor.tunnel, ...after });
    if (request.policy) toTrafficPolicy(request.policy, request.protocol);
    if (isDeepStrictEqual(after, before)) return false;
    const open = async (used: ChangedMembers) => {
      if (!isActive(supervisor)) throw new AgentError('ERR_AGENT_TUNNEL_NOT_FOUND', 'the tunnel has been deleted');
      supervisor.use(used);
      if ((await supervisor.reopen()) !== null) throw supervisor.bindError;
    };
    try {
      await open(after);
      await store.save(supervisor.tunnel);
      return true;
    } catch (error) {
      // Supervision retries when this fails too.
      await open(before).catch(() => {});
      throw error;
    } finally {
      if (isActive(supervisor)) supervisor.start();
    }
  }

  /** Closes and opens a tunnel whose connections bypass the agent, and should no longer. */
  async #openThroughAgent(id: string): Promise<void> {
    const { list, reports, connector } = this.own;
    const supervisor = list.get(id);
    if (!supervisor || !reports.counters(id)?.isBypassed || !connector.isOnline) return;
    this.#changing.add(id);
    try {
      // Supervision retries when this fails.
      await this.reopen(supervisor);
    } finally {
      this.#changing.delete(id);
    }
  }
}

function beingChanged(): AgentError {
  return new AgentError('ERR_AGENT_BUSY', 'the tunnel is being changed: retry later', { retryAfter: RETRY_AFTER_S });
}
