import { randomUUID } from 'node:crypto';
import type { Clock } from '../../lib/clock.ts';
import { Limiter } from '../../lib/limiter.ts';
import type { Log } from '../../lib/log.ts';
import type { PolicyInput } from '../../traffic-policy/document.ts';
import type { Connector } from '../connectors/connector.ts';
import { AgentError, RETRY_AFTER_S } from '../errors/agent-error.ts';
import { parseUpstream } from '../upstreams/upstream.ts';
import type { UpstreamDialer } from '../upstreams/upstream-dialer.ts';
import type { UpstreamGuard } from '../upstreams/upstream-guard.ts';
import { PoliciesInForce } from './policies-in-force.ts';
import { domainOf, type Tunnel, type TunnelRequest, type TunnelState } from './tunnel.ts';
import { TunnelList, type TunnelView } from './tunnel-list.ts';
import { type OpenTunnel, TunnelOpener, type TunnelSpec } from './tunnel-opener.ts';
import type { TunnelStore } from './tunnel-store.ts';
import { TunnelSupervisor } from './tunnel-supervisor.ts';
import { openUnclaimed } from './unclaimed-endpoint.ts';

export interface TunnelManagerOptions {
  connector: Connector;
  store: TunnelStore;
  guard: UpstreamGuard;
  dialer: UpstreamDialer;
  /** In force on every tunnel that has no policy of its own. */
  defaultPolicies: PolicyInput;
  /** Domains that no tunnel may take: the agent's own. */
  reservedDomains: readonly string[];
  log: Log;
  clock: Clock;
}

/** Endpoints that are bound at the same time after a session came up. */
const MAX_BINDING = 16;

/** The tunnels of this agent: creates and removes them, and keeps all others up. */
export class TunnelManager {
  readonly policies: PoliciesInForce;
  readonly #list: TunnelList;
  readonly #removals = new Map<string, Promise<void>>();
  readonly #limiter = new Limiter(MAX_BINDING);
  readonly #opener: TunnelOpener;
  #stopped = false;
  /** Whether tunnels are still coming up after a session did. */
  #risingSince: number | null = null;

  constructor(private readonly options: TunnelManagerOptions) {
    const { connector, dialer, defaultPolicies, reservedDomains } = options;
    this.#list = new TunnelList(reservedDomains);
    this.policies = new PoliciesInForce({
      defaults: defaultPolicies,
      keepers: () => this.#list.values(),
      stays: (keeper) => this.#stays(keeper),
      limiter: this.#limiter,
    });
    this.#opener = new TunnelOpener(connector, dialer, () => this.policies.defaults);
  }

  /**
   * Loads the tunnels and keeps them up from the moment the connector is online.
   *
   * @throws {OperatorError} when what is on the disk cannot be used
   */
  async start(): Promise<void> {
    const { store, connector } = this.options;
    await store.open();
    for (const tunnel of store.list()) this.#adopt(tunnel, null);
    connector.on('online', this.#sessionOnline);
    connector.on('offline', this.#sessionLost);
    if (connector.status.state === 'online') this.#sessionOnline();
  }

  /** Stops keeping tunnels up, and waits for writes that are under way. Endpoints go with the session. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.options.connector.off('online', this.#sessionOnline);
    this.options.connector.off('offline', this.#sessionLost);
    for (const keeper of this.#list.values()) keeper.abandon();
    await this.options.store.settled();
  }

  /** All tunnels in order of creation. */
  list(): TunnelView[] {
    return [...this.#list.values()];
  }

  /** How many tunnels are in each state. */
  counts(): Readonly<Record<TunnelState, number>> {
    return this.#list.counts;
  }

  /**
   * @param urlPart first label, host, `host:port` or whole URL
   * @throws {AgentError} 404, or 409 when several tunnels match
   */
  find(urlPart: string): TunnelView {
    return this.#list.find(urlPart);
  }

  /** The shortest part of a tunnel's URL that means no other one now. */
  urlPartOf(view: TunnelView): string {
    return this.#list.urlPartOf(view);
  }

  /**
   * Creates a tunnel: when this resolves its endpoint is up and the tunnel is on the disk, otherwise neither.
   *
   * @throws {ApiError} 400 for an upstream or policy that cannot be used, 409 when the domain is taken,
   *   503 without a session, 500 when it cannot be saved, and the gateway's refusals
   */
  async create(request: TunnelRequest): Promise<TunnelView> {
    const { protocol, forwards_to } = request;
    const domain = request.domain ?? undefined;
    const spec: TunnelSpec = { protocol, forwards_to, policy: request.policy ?? null, ...(domain && { domain }) };
    this.#opener.trafficPolicy(spec);
    let taken: string | null = null;
    const take = (name: string) => {
      this.#list.takeDomain(name);
      taken = name;
    };
    if (domain) take(domain);
    try {
      // First the session: without a network no name could be resolved, and that would be blamed on the upstream.
      this.#requireSession();
      await this.options.guard.check(parseUpstream(forwards_to));
      return await this.#open(spec, take);
    } catch (error) {
      if (taken !== null) this.#list.giveUpDomain(taken);
      throw error;
    }
  }

  /**
   * Removes a tunnel: closes its endpoint, then forgets it. If that cannot be saved, the tunnel comes back.
   *
   * @throws {ApiError} 500 when it cannot be saved
   */
  remove({ tunnel: { id } }: TunnelView): Promise<void> {
    const keeper = this.#list.get(id);
    if (!keeper) return Promise.resolve();
    const removal =
      this.#removals.get(id) ??
      this.#remove(keeper).finally(() => {
        this.#removals.delete(id);
      });
    this.#removals.set(id, removal);
    return removal;
  }

  readonly #sessionOnline = (): void => {
    this.#risingSince = this.#list.size > 0 ? this.options.clock.now() : null;
    for (const keeper of this.#list.values()) keeper.sessionOnline();
  };

  readonly #sessionLost = (): void => {
    this.#risingSince = null;
    for (const keeper of this.#list.values()) keeper.sessionLost();
  };

  #stays(keeper: TunnelSupervisor): boolean {
    const { id } = keeper.tunnel;
    return this.#list.get(id) === keeper && !this.#removals.has(id) && !this.#stopped;
  }

  #requireSession(): void {
    const later = { retryAfter: RETRY_AFTER_S };
    if (this.#stopped) throw new AgentError('ERR_AGENT_STOPPING', 'the agent is stopping', later);
    const { state, gateway, lastError } = this.options.connector.status;
    if (state === 'online') return;
    const reason = lastError ? `: ${lastError.message}` : '';
    throw new AgentError('ERR_AGENT_OFFLINE', `there is no session with ${gateway}${reason}`, later);
  }

  /** @param take takes the domain that the gateway chose */
  async #open(spec: TunnelSpec, take: (domain: string) => void): Promise<TunnelView> {
    const { protocol, forwards_to, policy } = spec;
    const domainAt = ({ endpoint }: OpenTunnel) => spec.domain ?? domainOf(endpoint.url, protocol);
    const open = await openUnclaimed(
      () => this.#opener.open(spec),
      (chosen) => spec.domain ?? take(domainAt(chosen)),
      (chosen) => this.#closeUnremembered(chosen),
    );
    try {
      const { url } = open.endpoint;
      const created_at = new Date().toISOString();
      const tunnel: Tunnel = {
        id: randomUUID(),
        protocol,
        forwards_to,
        domain: domainAt(open),
        url,
        policy,
        created_at,
      };
      await this.options.store.save(tunnel);
      return this.#adopt(tunnel, open);
    } catch (error) {
      await this.#closeUnremembered(open);
      throw error;
    }
  }

  async #openAgain(spec: Tunnel): Promise<OpenTunnel> {
    this.#list.refuseClosed(spec.domain);
    return this.#opener.open(spec);
  }

  /** A public endpoint that is on no list must not stay. */
  async #closeUnremembered(open: OpenTunnel): Promise<void> {
    await open.close().catch((err: unknown) => {
      this.options.log.error({ err, url: open.endpoint.url }, 'the endpoint of a refused tunnel could not be closed');
    });
  }

  async #remove(keeper: TunnelSupervisor): Promise<void> {
    try {
      await keeper.close();
      await this.options.store.remove(keeper.tunnel.id);
    } catch (error) {
      if (!this.#stopped) keeper.keep();
      throw error;
    }
    this.#list.delete(keeper);
  }

  #adopt(tunnel: Tunnel, open: OpenTunnel | null): TunnelSupervisor {
    const { connector, clock, log, store } = this.options;
    const keeper: TunnelSupervisor = new TunnelSupervisor(tunnel, {
      opener: { open: (spec) => this.#openAgain(spec) },
      session: () => connector.status,
      limiter: this.#limiter,
      clock,
      log,
      save: (changed) => store.save(changed),
      changed: (before) => this.#keeperChanged(keeper, before),
    });
    this.#list.add(keeper);
    keeper.keep(open);
    return keeper;
  }

  #keeperChanged(keeper: TunnelSupervisor, before: TunnelState): void {
    this.#list.changed(keeper, before);
    const { connecting, offline, online, failed } = this.#list.counts;
    if (this.#risingSince === null || connecting + offline > 0) return;
    const ms = Math.round(this.options.clock.now() - this.#risingSince);
    this.#risingSince = null;
    this.options.log.info({ online, failed, ms }, 'tunnels are up');
  }
}
