import { Limiter } from '../../lib/limiter.ts';
import type { PolicyInput } from '../../traffic-policy/document.ts';
import type { ConnectedEndpoint, Connector } from '../connectors/connector.ts';
import type { AgentContext } from '../context/agent-context.ts';
import { AgentError, RETRY_AFTER_S } from '../errors/agent-error.ts';
import { type StartRequestLog, type Traffic, TrafficCounters, TrafficTotals } from '../upstreams/traffic-counters.ts';
import type { UpstreamDialer } from '../upstreams/upstream-dialer.ts';
import type { UpstreamGuard } from '../upstreams/upstream-guard.ts';
import { DefaultPolicies } from './default-policies.ts';
import { RequestWatches, type RunningWatch, type WatchAtUrl } from './request-watches.ts';
import type { Site } from './site-names.ts';
import type { ShownState, Tunnel, TunnelRequest, TunnelState } from './tunnel.ts';
import { TunnelChanges } from './tunnel-changes.ts';
import { TunnelList, type TunnelView } from './tunnel-list.ts';
import { TunnelLog } from './tunnel-log.ts';
import { TunnelOpener } from './tunnel-opener.ts';
import { TunnelReports } from './tunnel-reports.ts';
import { TunnelSupervisor } from './tunnel-supervisor.ts';
import type { TunnelStore } from './tunnels-file.ts';

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
  warningsAt?: (url: string) => readonly string[];
  /** How a gateway in this process reports requests; omitted: there is none. */
  watchAtUrl?: WatchAtUrl;
  /** Called when a tunnel has been created, and after its state or URL has changed. */
  changed?: (view: TunnelView) => void;
  /** Called with the id of a tunnel that was deleted. */
  removed?: (id: string) => void;
  /** Where new tunnels without a full hostname get their names; omitted: the gateway chooses. */
  site?: Site | null;
  /** Whether the gateway is ngrok's network; omitted: it is not. */
  isCloud?: boolean;
}

/** Endpoints bound concurrently once a session is online. */
const MAX_BINDING = 16;

/** The tunnels of this agent: creates and removes them, and keeps the others online. */
export class TunnelManager {
  readonly policies: DefaultPolicies;
  readonly reports: TunnelReports;
  readonly changes: TunnelChanges;
  readonly traffic = new TrafficTotals();
  readonly #watches: RequestWatches;
  readonly #list: TunnelList;
  readonly #removals = new Map<string, Promise<void>>();
  readonly #limiter = new Limiter(MAX_BINDING);
  readonly #opener: TunnelOpener;
  readonly #log: TunnelLog;
  #stopped = false;

  constructor(
    private readonly context: Pick<AgentContext, 'clock' | 'log'>,
    private readonly options: TunnelManagerOptions,
  ) {
    const { clock } = context;
    const { connector, dialer, defaultPolicies, reservedDomains } = options;
    const { trafficAt = () => null, warningsAt = () => [], watchAtUrl = () => null } = options;
    this.#list = new TunnelList(reservedDomains);
    this.#log = new TunnelLog(context, this.#list, connector);
    this.reports = new TunnelReports(dialer.healths, { trafficAt, warningsAt });
    const shared = {
      ...options,
      site: options.site ?? null,
      isCloud: options.isCloud ?? false,
      list: this.#list,
      reports: this.reports,
      isActive: (supervisor: TunnelSupervisor) => this.#isActive(supervisor),
      requireSession: () => this.#requireSession(),
    };
    this.#opener = new TunnelOpener(context, shared, defaultPolicies);
    this.changes = new TunnelChanges(context, shared);
    this.policies = new DefaultPolicies({
      ...shared,
      opener: this.#opener,
      reopen: (supervisor) => this.changes.reopen(supervisor),
      limiter: this.#limiter,
    });
    this.#watches = new RequestWatches((id) => this.#list.get(id)?.endpoint ?? null, watchAtUrl, clock);
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
    for (const tunnel of store.list())
      this.#supervise(
        tunnel,
        null,
        this.#newCounters(() => this.#list.get(tunnel.id)?.url),
      );
    connector.on('online', this.#sessionOnline);
    connector.on('offline', this.#sessionLost);
    if (connector.isOnline) this.#sessionOnline();
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

  /** Why the last change of a tunnel could not be saved; null when it was. */
  get saveFailure(): AgentError | null {
    return this.options.store.failure;
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
    let supervisor: TunnelSupervisor | null = null;
    const traffic = this.#newCounters(() => supervisor?.url);
    const { tunnel, endpoint, unresolved } = await this.#opener.create(request, traffic, notice);
    supervisor = this.#supervise(tunnel, endpoint, traffic);
    const view = supervisor;
    if (unresolved) this.reports.health(view)?.failed(unresolved, false);
    this.options.changed?.(view);
    return view;
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
   * Gets what the gateway reports of a tunnel's requests, across sessions.
   *
   * @param onLine called with each line of JSON; a later call for the same tunnel ends this one
   */
  watchRequests(id: string, onLine: (line: string) => void): RunningWatch {
    return this.#watches.watch(id, onLine);
  }

  readonly #sessionOnline = (): void => {
    this.#log.sessionOnline();
    for (const supervisor of this.#list.values()) supervisor.sessionOnline();
  };

  readonly #sessionLost = (): void => {
    this.#log.sessionLost();
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
    const { connector } = this.options;
    if (connector.isOnline) return;
    const { gateway, lastError } = connector.status;
    const reason = lastError?.message ?? 'the agent is still connecting; retry';
    throw new AgentError('ERR_AGENT_OFFLINE', `no session with ${gateway}: ${reason}`, later);
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
    this.context.log.info({ url: supervisor.url }, 'tunnel deleted');
  }

  /** @param url names the tunnel in the log of requests; undefined: it has no URL yet */
  #newCounters(url: () => string | undefined): TrafficCounters {
    const { requestLog = null } = this.options;
    return new TrafficCounters(this.traffic, requestLog && (() => requestLog(() => url() ?? '')));
  }

  #supervise(tunnel: Tunnel, endpoint: ConnectedEndpoint | null, traffic: TrafficCounters): TunnelSupervisor {
    const { connector, store } = this.options;
    const own = {
      open: async () => {
        this.#list.refuseReserved(supervisor.tunnel.domain);
        const opened = await this.#opener.reopen(supervisor.tunnel, traffic);
        this.#watches.opened(tunnel.id, opened);
        return opened;
      },
      connector,
      limiter: this.#limiter,
      save: (changed: Tunnel) => store.save(changed),
      changed: (before: TunnelState, isFirst: boolean) => {
        this.#list.changed(supervisor, before);
        this.#log.changed(supervisor, before, isFirst);
        this.options.changed?.(supervisor);
      },
    };
    const supervisor: TunnelSupervisor = new TunnelSupervisor(tunnel, this.context, own, endpoint);
    this.#list.add(supervisor);
    this.reports.watch(tunnel, traffic);
    supervisor.start();
    return supervisor;
  }
}
