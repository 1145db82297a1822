import { Limiter } from '../../lib/limiter.ts';
import type { Log } from '../../lib/log/log.ts';
import type { Clock } from '../../lib/time/clock.ts';
import type { PolicyInput } from '../../traffic-policy/document.ts';
import type { Connector } from '../connectors/connector.ts';
import { AgentError, RETRY_AFTER_S } from '../errors/agent-error.ts';
import {
  type StartRequestLog,
  type Traffic,
  type TrafficCapture,
  TrafficCounters,
  TrafficTotals,
} from '../upstreams/traffic-counters.ts';
import { displayUpstream } from '../upstreams/upstream.ts';
import type { UpstreamDialer } from '../upstreams/upstream-dialer.ts';
import type { UpstreamGuard } from '../upstreams/upstream-guard.ts';
import type { UpstreamHealth } from '../upstreams/upstream-health.ts';
import { PoliciesInForce } from './policies-in-force.ts';
import { type RequestWatch, RequestWatches, type WatchAtUrl } from './request-watches.ts';
import { domainAtSite, isLabel, openChoice, type Site } from './site-names.ts';
import type { ChangedMembers, ShownState, Tunnel, TunnelChange, TunnelRequest, TunnelState } from './tunnel.ts';
import { changeTunnel } from './tunnel-change.ts';
import { TunnelCreation } from './tunnel-creation.ts';
import { TunnelList, type TunnelView } from './tunnel-list.ts';
import { offerToMove, TunnelLog } from './tunnel-log.ts';
import { type OpenTunnel, TunnelOpener } from './tunnel-opener.ts';
import { TunnelReports } from './tunnel-reports.ts';
import { specOfTunnel, type TunnelSpec } from './tunnel-spec.ts';
import type { TunnelStore } from './tunnel-store.ts';
import { TunnelSupervisor } from './tunnel-supervisor.ts';

export interface TunnelManagerOptions {
  connector: Connector;
  store: TunnelStore;
  guard: UpstreamGuard;
  dialer: UpstreamDialer;
  /** In force on every tunnel without a policy of its own. */
  defaultPolicies: PolicyInput;
  /** Domains that no tunnel may use: the agent's own. */
  reservedDomains: readonly string[];
  /** Changes the saved tunnels before they are loaded; omitted: nothing. */
  declare?: (store: TunnelStore) => Promise<void>;
  /** Null or omitted: requests are not logged. */
  requestLog?: StartRequestLog | null;
  /** What the gateway has counted at a URL; null: unknown. Omitted: the gateway does not tell. */
  trafficAt?: (url: string) => Traffic | null;
  /** How a gateway in this process reports requests; omitted: there is none. */
  watchAtUrl?: WatchAtUrl;
  /** Called with the id of a tunnel that was deleted. */
  removed?: (id: string) => void;
  /** Where new tunnels without a full hostname get their names; omitted: the gateway chooses. */
  site?: Site | null;
  log: Log;
  clock: Clock;
}

/** Endpoints bound concurrently once a session is online. */
const MAX_BINDING = 16;

/** The tunnels of this agent: creates and removes them, and keeps the others online. */
export class TunnelManager {
  readonly policies: PoliciesInForce;
  readonly reports: TunnelReports;
  readonly traffic = new TrafficTotals();
  readonly #watches: RequestWatches;
  readonly #list: TunnelList;
  readonly #removals = new Map<string, Promise<void>>();
  /** Ids of tunnels that are being changed. */
  readonly #changing = new Set<string>();
  readonly #limiter = new Limiter(MAX_BINDING);
  readonly #opener: TunnelOpener;
  readonly #creation: TunnelCreation;
  readonly #log: TunnelLog;
  #stopped = false;
  /** When the session came online; null once all tunnels have settled. */
  #settlingSince: number | null = null;

  constructor(private readonly options: TunnelManagerOptions) {
    const { connector, dialer, defaultPolicies, reservedDomains, log } = options;
    this.#log = new TunnelLog(connector, log);
    this.#list = new TunnelList(reservedDomains);
    this.reports = new TunnelReports(dialer.healths, options.trafficAt ?? (() => null));
    this.policies = new PoliciesInForce({
      defaults: defaultPolicies,
      supervisors: () => this.#list.values(),
      isActive: (supervisor) => this.#isActive(supervisor),
      limiter: this.#limiter,
    });
    const { watchAtUrl = () => null, clock } = options;
    const endpointOf = (id: string) => this.#list.get(id)?.endpoint ?? null;
    this.#watches = new RequestWatches(endpointOf, watchAtUrl, clock);
    this.#opener = new TunnelOpener(connector, dialer, () => this.policies.defaults);
    this.#creation = new TunnelCreation({
      ...options,
      list: this.#list,
      opener: this.#opener,
      site: options.site ?? null,
      requireSession: () => this.#requireSession(),
    });
  }

  /**
   * Loads the tunnels and keeps them online from the first session on.
   *
   * @throws {OperatorError} when the file of tunnels cannot be used
   */
  async start(): Promise<void> {
    const { store, connector } = this.options;
    await store.open();
    await this.options.declare?.(store);
    for (const tunnel of store.list()) this.#supervise(tunnel, null, this.#newCounters());
    connector.on('online', this.#sessionOnline);
    connector.on('offline', this.#sessionLost);
    if (connector.status.state === 'online') this.#sessionOnline();
  }

  /** Stops supervision and waits for pending writes. Endpoints end with the session. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.options.connector.off('online', this.#sessionOnline);
    this.options.connector.off('offline', this.#sessionLost);
    for (const supervisor of this.#list.values()) supervisor.stop();
    await this.options.store.settled();
  }

  list(): TunnelView[] {
    return [...this.#list.values()];
  }

  counts(): Readonly<Record<TunnelState, number>> {
    return this.#list.counts;
  }

  /** The tunnels by state, `degraded` included. */
  shownCounts(): Readonly<Record<ShownState, number>> {
    return this.reports.counts(this.#list.values());
  }

  /**
   * @param urlPart first label, host, `host:port` or whole URL
   * @throws {AgentError} 404, or 409 when several tunnels match
   */
  find(urlPart: string): TunnelView {
    return this.#list.find(urlPart);
  }

  /** The shortest part of a tunnel's URL that identifies it now. */
  urlPartOf(view: TunnelView): string {
    return this.#list.urlPartOf(view);
  }

  /**
   * Creates a tunnel. When this resolves, its endpoint is online and the tunnel is on the disk; otherwise neither.
   *
   * @param notice called with a remark for the person who asked for it
   * @throws {ApiError} 400 for an upstream or policy that is not allowed, 409 when the domain is in use,
   *   503 without a session, 500 when the tunnel cannot be saved, and the gateway's refusals
   */
  async create(request: TunnelRequest, notice: (text: string) => void = () => {}): Promise<TunnelView> {
    const traffic = this.#newCounters();
    const { tunnel, open } = await this.#creation.create(request, traffic, notice);
    return this.#supervise(tunnel, open, traffic);
  }

  /**
   * Removes a tunnel: closes its endpoint, then deletes it from the disk. If that fails, the tunnel stays.
   *
   * @throws {ApiError} 500 when the change cannot be saved
   */
  remove({ tunnel: { id } }: TunnelView): Promise<void> {
    const supervisor = this.#list.get(id);
    if (!supervisor) return Promise.resolve();
    const removal =
      this.#removals.get(id) ??
      this.#remove(supervisor).finally(() => {
        this.#removals.delete(id);
      });
    this.#removals.set(id, removal);
    return removal;
  }

  /**
   * Changes the policy or the upstream of a tunnel, which is opened again for it. One change of a tunnel at a time.
   *
   * @throws {ApiError} as {@link changeTunnel}, 400 for an upstream that is not allowed, and 503 without a session or during
   *   another change; then the tunnel stays as it was
   */
  async change({ tunnel }: TunnelView, { policy, forwards_to: upstream }: TunnelChange): Promise<void> {
    const { id } = tunnel;
    const supervisor = this.#list.get(id);
    if (!supervisor || this.#changing.has(id)) throw beingChanged();
    this.#requireSession();
    this.#changing.add(id);
    try {
      if (upstream) await this.options.guard.check(upstream);
      const change = {
        ...(policy !== undefined && { policy }),
        ...(upstream && { forwards_to: displayUpstream(upstream) }),
      };
      const isActive = (one: TunnelSupervisor) => this.#isActive(one);
      const save = (changed: Tunnel) => this.options.store.save(changed);
      if (!(await changeTunnel(supervisor, change, { isActive, save }))) return;
    } finally {
      this.#changing.delete(id);
    }
    this.reports.changed(supervisor.tunnel);
    this.options.log.info({ url: supervisor.url, upstream: supervisor.tunnel.forwards_to }, 'tunnel changed');
  }

  /**
   * Captures what the connections of a tunnel carry, or no longer (null). If they bypass the agent, the tunnel is closed and
   * opened again through it, where it stays until it is opened the next time: ending that at once would interrupt clients
   * again.
   *
   * @throws {AgentError} 503 while the tunnel is being changed
   */
  async captureBy(id: string, capture: (() => TrafficCapture) | null): Promise<void> {
    const counters = this.reports.counters(id);
    if (capture !== null && this.#changing.has(id)) throw beingChanged();
    counters?.captureBy(capture);
    if (capture !== null) await this.#openThroughAgent(id);
  }

  /** Opens the tunnels that lead to an upstream through the agent, which can close what the upstream keeps open. */
  async relay(upstream: UpstreamHealth): Promise<void> {
    for (const supervisor of [...this.#list.values()]) {
      const { id } = supervisor.tunnel;
      const isTheirs = this.reports.health(supervisor) === upstream && !this.#changing.has(id);
      if (isTheirs) await this.#openThroughAgent(id);
    }
  }

  /** Closes and opens a tunnel whose connections bypass the agent, and should no longer. */
  async #openThroughAgent(id: string): Promise<void> {
    const supervisor = this.#list.get(id);
    const isOnline = this.options.connector.status.state === 'online';
    if (!supervisor || !this.reports.counters(id)?.isBypassed || !isOnline || !this.#isActive(supervisor)) return;
    this.#changing.add(id);
    try {
      // Supervision retries when this fails.
      await supervisor.reopen();
    } finally {
      this.#changing.delete(id);
      if (this.#isActive(supervisor)) supervisor.start();
    }
  }

  /**
   * Gets what the gateway reports of a tunnel's requests, across sessions.
   *
   * @param onLine called with each line of JSON; a later call for the same tunnel ends this one
   */
  watchRequests(id: string, onLine: (line: string) => void): RequestWatch {
    return this.#watches.watch(id, onLine);
  }

  readonly #sessionOnline = (): void => {
    this.#settlingSince = this.#list.size > 0 ? this.options.clock.now() : null;
    for (const supervisor of this.#list.values()) supervisor.sessionOnline();
  };

  readonly #sessionLost = (): void => {
    this.#settlingSince = null;
    for (const supervisor of this.#list.values()) supervisor.sessionLost();
  };

  /** Whether a tunnel is listed and neither it nor the agent is being stopped. */
  #isActive(supervisor: TunnelSupervisor): boolean {
    const { id } = supervisor.tunnel;
    return this.#list.get(id) === supervisor && !this.#removals.has(id) && !this.#stopped;
  }

  #requireSession(): void {
    const later = { retryAfter: RETRY_AFTER_S };
    if (this.#stopped) throw new AgentError('ERR_AGENT_STOPPING', 'the agent is stopping', later);
    const { state, gateway, lastError } = this.options.connector.status;
    if (state === 'online') return;
    const reason = lastError ? `: ${lastError.message}` : '';
    throw new AgentError('ERR_AGENT_OFFLINE', `no session with ${gateway}${reason}`, later);
  }

  /** Opens a stored tunnel. A file can have declared one with a label only, which gets its domain now. */
  async #open(spec: TunnelSpec & { domain: string }, traffic: TrafficCounters): Promise<OpenTunnel> {
    const choice = isLabel(spec) ? domainAtSite(spec, this.options.site ?? null) : null;
    if (choice === null) return this.#opener.open(spec, traffic);
    const { opened, reason } = await openChoice(choice, (domain) => this.#opener.open({ ...spec, domain }, traffic));
    if (reason !== null)
      this.options.log.info({ url: opened.endpoint.url, reason }, 'tunnel got a name of this device');
    return opened;
  }

  async #remove(supervisor: TunnelSupervisor): Promise<void> {
    try {
      await supervisor.close();
      await this.options.store.remove(supervisor.tunnel.id);
    } catch (error) {
      if (!this.#stopped) supervisor.start();
      throw error;
    }
    this.#list.delete(supervisor);
    this.reports.unwatch(supervisor.tunnel);
    this.options.removed?.(supervisor.tunnel.id);
    this.options.log.info({ url: supervisor.url }, 'tunnel deleted');
  }

  #newCounters(): TrafficCounters {
    return new TrafficCounters(this.traffic, this.options.requestLog);
  }

  #supervise(tunnel: Tunnel, open: OpenTunnel | null, traffic: TrafficCounters): TunnelSupervisor {
    const { connector, clock, log, store } = this.options;
    // Parsed again only after a change.
    let parsed: (ChangedMembers & { spec: TunnelSpec }) | null = null;
    const supervisor: TunnelSupervisor = new TunnelSupervisor(tunnel, {
      open: async () => {
        const { policy, forwards_to, domain } = supervisor.tunnel;
        this.#list.refuseReserved(domain);
        if (parsed?.policy !== policy || parsed.forwards_to !== forwards_to) {
          parsed = { policy, forwards_to, spec: specOfTunnel(supervisor.tunnel) };
        }
        const opened = await this.#open({ ...parsed.spec, domain }, traffic);
        this.#watches.opened(tunnel.id, opened.endpoint);
        return opened;
      },
      session: () => connector.status,
      limiter: this.#limiter,
      clock,
      log,
      save: (changed) => store.save(changed),
      changed: (before) => this.#supervisorChanged(supervisor, before),
    });
    this.#list.add(supervisor);
    traffic.url = () => supervisor.url;
    this.reports.watch(tunnel, traffic);
    if (open !== null) this.#log.noteOnline(supervisor);
    supervisor.start(open);
    return supervisor;
  }

  #supervisorChanged(supervisor: TunnelSupervisor, before: TunnelState): void {
    this.#list.changed(supervisor, before);
    this.#log.changed(supervisor, before, this.#list.size);
    const { connecting, offline, online, failed } = this.#list.counts;
    if (this.#settlingSince === null || connecting + offline > 0) return;
    const after_ms = Math.round(this.options.clock.now() - this.#settlingSince);
    this.#settlingSince = null;
    const { log } = this.options;
    if (failed === 0) log.info({ online, failed, after_ms }, 'tunnels online');
    else log.warn({ online, failed, after_ms }, 'some tunnels are not online');
    if (failed > 0) offerToMove(this.list(), log);
  }
}

function beingChanged(): AgentError {
  return new AgentError('ERR_AGENT_BUSY', 'the tunnel is being changed: retry later', { retryAfter: RETRY_AFTER_S });
}
