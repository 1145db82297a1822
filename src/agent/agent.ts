import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CleanupStack } from '../lib/cleanup-stack.ts';
import type { BrowserSessions } from '../lib/http/browser-sessions.ts';
import type { Log, LogLevel } from '../lib/log/log.ts';
import type { LogTail } from '../lib/log/log-tail.ts';
import { isLoopbackHost } from '../lib/network/loopback-host.ts';
import { type Clock, systemClock } from '../lib/time/clock.ts';
import { PACKAGED_PAGES } from '../packaged-pages.ts';
import type { Settings } from '../settings/agent-settings.ts';
import { VERSION } from '../version.ts';
import { type AppOptions, createLocalApp, createRemoteApp } from './api/app.ts';
import { hasContainerNetwork } from './api/container-network.ts';
import { LazyInspection } from './api/inspection/lazy-inspection.ts';
import type { Metrics, MetricsSource } from './api/metrics.ts';
import { DevicePage } from './api/page/device-page.ts';
import type { PageFinding } from './api/page/page-routes.ts';
import { type RunningServer, startServer } from './api/server.ts';
import { ApiTokenInUse, openApiToken } from './api-token.ts';
import { AuthtokenRenewal } from './authtoken-renewal.ts';
import type { SessionStatus } from './connectors/connector.ts';
import { GatewayConnector } from './connectors/gateway-connector.ts';
import { openDataFolder } from './folders/data-folder.ts';
import { openRuntimeFolder } from './folders/runtime-folder.ts';
import { type GatewayUplink, gatewayName, openUplink } from './gateway-uplink.ts';
import { openLink } from './open-link.ts';
import { OwnEndpoint } from './own-endpoint.ts';
import { openPageSessions } from './page-sessions.ts';
import { loadDefaultPolicies } from './tunnels/default-policies.ts';
import { DurableFile } from './tunnels/durable-file.ts';
import type { WatchAtUrl } from './tunnels/request-watches.ts';
import type { ShownState, TunnelStatus } from './tunnels/tunnel.ts';
import { TunnelManager, type TunnelManagerOptions } from './tunnels/tunnel-manager.ts';
import { TunnelStore, tunnelsCodec, tunnelsFile } from './tunnels/tunnel-store.ts';
import { AbandonedConnections } from './upstreams/abandoned-connections.ts';
import { parseUpstream } from './upstreams/upstream.ts';
import { checkHttp } from './upstreams/upstream-check.ts';
import { connectUpstream } from './upstreams/upstream-connection.ts';
import { UpstreamDialer } from './upstreams/upstream-dialer.ts';
import { UpstreamGuard } from './upstreams/upstream-guard.ts';
import type { UpstreamHealth } from './upstreams/upstream-health.ts';
import { UpstreamMonitor } from './upstreams/upstream-monitor.ts';

/** The agent's status in brief. */
export interface AgentStatus {
  session: SessionStatus;
  tunnels: Readonly<Record<ShownState, number>>;
  /** The state of the agent's own domain; null without one. */
  remoteApi: TunnelStatus | null;
}

/** A running agent; its API answers. */
export interface Agent {
  /**
   * Resolves when the embedded gateway, if used, has started and the session supervisor runs. Rejects with an
   * {@link OperatorError} when either fails; by then the agent has stopped.
   */
  readonly started: Promise<void>;
  status(): AgentStatus;
  /** The addresses of the agent and its gateway by their names in `/status`. */
  addresses(): Record<string, string | null>;
  /** Milliseconds since the session supervisor last made progress, online or not. */
  silentMs(): number;
  /**
   * Reloads log level, default policies and API token. Changed default policies reopen the tunnels without a policy of
   * their own.
   *
   * @throws {OperatorError} when one of them is not valid; then nothing changes
   */
  reload(settings: Settings): Promise<void>;
  /** Stops all parts in order; the tunnels stay on the disk. */
  stop(): Promise<void>;
}

/** What the device's page shows beyond the API. */
export interface PageExtras {
  logTail: LogTail | null;
  /** Runs the checks of `device-agent doctor`. */
  diagnose: (() => Promise<PageFinding[]>) | null;
}

const NO_EXTRAS: PageExtras = { logTail: null, diagnose: null };
/** How long pending requests get to finish when the agent stops. */
const API_GRACE_MS = 1500;
const UPSTREAM_CONNECT_MS = 10_000;
/** The same for a check, for which nobody waits. */
const UPSTREAM_CHECK_MS = 3_000;
/** Why tunnels may not forward there. */
const OWN_API = "the agent's own API, which clients would reach without a token; set AGENT_DOMAIN to publish it";

/**
 * Starts the agent: the API first, then everything that may take longer.
 *
 * @param clock times reconnects and retries
 * @param extras what the page shows beyond the API
 * @returns once the API answers
 * @throws {OperatorError} when the operator has to fix something first
 */
export async function startAgent(
  settings: Settings,
  log: Log,
  clock: Clock = systemClock,
  extras: PageExtras = NO_EXTRAS,
): Promise<Agent> {
  const cleanup = new CleanupStack(log);
  const undo = async (error: unknown): Promise<never> => {
    // The operator needs the reason that the start failed; errors while stopping are in the log.
    await cleanup.run().catch(() => {});
    throw error;
  };
  const running = await launch({ settings, log, clock, extras, cleanup }).catch(undo);
  return { ...running, started: running.started.catch(undo), stop: () => cleanup.run() };
}

/** Shared by the parts of an agent while they start. */
interface Start {
  settings: Settings;
  guard: UpstreamGuard;
  /** For `/status`: addresses of the agent and its gateway, added as they start. */
  addresses: Record<string, string>;
  log: Log;
  clock: Clock;
  cleanup: CleanupStack;
}

interface Launch extends Pick<Start, 'settings' | 'log' | 'clock' | 'cleanup'> {
  extras: PageExtras;
}

/** Each part needs those above it. They stop in the reverse order. */
async function launch({ settings, log, clock, extras, cleanup }: Launch): Promise<Omit<Agent, 'stop'>> {
  const began = performance.now();
  const { dataDir } = settings;
  const defaultPolicies = await loadDefaultPolicies(settings.defaultPolicies);
  const socketFolder = await openFolders(dataDir, log, cleanup);
  const apiToken = await ApiTokenInUse.open(settings, log);
  const guard = new UpstreamGuard(settings.allowUpstreams);
  const start: Start = { settings, guard, addresses: {}, log, clock, cleanup };
  const uplink = createConnector(start);
  const { connector } = uplink;
  const own = createOwnEndpoint(start, connector, socketFolder);
  const upstreams = createUpstreams(start, connector, socketFolder, (upstream) => tunnels.relay(upstream));
  const tunnels = await createTunnels(start, { ...uplink, ...upstreams, defaultPolicies }, (id) =>
    inspection.forget(id),
  );
  const inspection = createInspection(start, tunnels, upstreams);
  // Registered first, so that the agent's own endpoint is bound first on each session.
  own?.start();
  cleanup.add(() => own?.stop());
  await tunnels.start();
  cleanup.add(() => tunnels.stop());
  upstreams.monitor.start();
  cleanup.add(() => upstreams.monitor.stop());
  const sessions = await openPageSessions(dataDir, () => apiToken.token, log);
  const app = createApp(start, { began, own, connector, ...upstreams, tunnels, inspection, sessions, extras });
  await serveApi(app, own, () => apiToken.token, start);
  announceRemote(settings, apiToken.file, log);

  return {
    started: Promise.all([connector.start(), app.metrics()]).then(() => {}),
    status: () => ({ session: connector.status, tunnels: tunnels.shownCounts(), remoteApi: own?.status ?? null }),
    addresses: app.addresses,
    silentMs: () => connector.silentMs,
    reload: async (next) => {
      const policies = await loadDefaultPolicies(next.defaultPolicies);
      const token = await openApiToken({ ...next, dataDir });
      await tunnels.policies.useDefaults(policies);
      // Somebody who knows the old token may have signed in with it. If that cannot be saved, the file is void under the
      // new token all the same.
      if (apiToken.use(token)) await sessions.endAll().catch(() => {});
      log.level = next.log.level;
      await uplink.setGatewayLogLevel(next.log.level);
    },
  };
}

/** @returns null without AGENT_DOMAIN */
function createOwnEndpoint({ settings, clock, log }: Start, connector: GatewayConnector, socketFolder: string) {
  const { domain } = settings.api;
  return domain === null
    ? null
    : new OwnEndpoint({ connector, domain, socket: join(socketFolder, 'api.sock'), clock, log });
}

type Upstreams = ReturnType<typeof createUpstreams>;

/** @param relay takes the connections of an upstream that hangs through the agent */
function createUpstreams(
  { settings, guard, clock, log }: Start,
  connector: GatewayConnector,
  socketFolder: string,
  relay: (upstream: UpstreamHealth) => Promise<void>,
) {
  const connection = { guard, verifyTls: settings.verifyUpstreamTls, upstreamCas: settings.systemCas };
  const connecting = { ...connection, connectMs: UPSTREAM_CONNECT_MS };
  const checking = { ...connection, connectMs: UPSTREAM_CHECK_MS };
  const dialer = new UpstreamDialer({ ...connecting, log, socketFolder });
  const { healths } = dialer;
  const abandoned = new AbandonedConnections({
    healths,
    onHangs: (upstream) => void relay(upstream).catch((err) => log.error({ err }, 'tunnel not reopened')),
    log,
  });
  // Before tunnels are bound again: those whose upstream hangs go through the agent.
  connector.on('offline', () => abandoned.look()).on('online', () => abandoned.sessionStarted());
  const monitor = new UpstreamMonitor({
    healths,
    connect: (upstream) => connectUpstream(upstream, checking),
    request: (socket, upstream) =>
      checkHttp(socket, upstream, { ...checking, privateFile: tunnelsFile(settings.dataDir) }),
    lookForAbandoned: () => abandoned.look(),
    isOnline: () => connector.status.state === 'online',
    clock,
  });
  return { dialer, abandoned, monitor, connecting };
}

/** @param removed called with the id of a tunnel that was deleted */
async function createTunnels(
  { settings, guard, log, clock }: Start,
  {
    connector,
    trafficAt,
    watchAtUrl,
    dialer,
    defaultPolicies,
  }: Pick<ReturnType<typeof createConnector>, 'connector' | 'trafficAt' | 'watchAtUrl'> &
    Pick<Upstreams, 'dialer'> &
    Pick<TunnelManagerOptions, 'defaultPolicies'>,
  removed: (id: string) => void,
): Promise<TunnelManager> {
  const { api, dataDir, tunnelsDir, site } = settings;
  const requestLog = settings.logRequests ? await openRequestLog(log) : null;
  const reservedDomains = api.domain === null ? [] : [api.domain];
  return new TunnelManager({
    connector,
    store: new TunnelStore(new DurableFile({ path: tunnelsFile(dataDir), codec: tunnelsCodec, log })),
    guard,
    dialer,
    defaultPolicies,
    reservedDomains,
    declare: async (store) => {
      if (tunnelsDir === null) return;
      const { applyDeclaredTunnels } = await import('./tunnels/declared-tunnels.ts');
      await applyDeclaredTunnels(store, { folder: tunnelsDir, rules: { defaultPolicies, reservedDomains, site }, log });
    },
    requestLog: requestLog && ((url) => requestLog.connection(url)),
    trafficAt,
    watchAtUrl,
    removed,
    site,
    log,
    clock,
  });
}

function createInspection(
  { cleanup, clock }: Start,
  tunnels: TunnelManager,
  { connecting }: Upstreams,
): LazyInspection {
  const inspection = new LazyInspection({
    tunnels,
    observe: (id, capture) => tunnels.captureBy(id, capture),
    watchRequests: (id, onLine) => tunnels.watchRequests(id, onLine),
    connect: (forwardsTo) => connectUpstream(parseUpstream(forwardsTo), connecting),
    version: VERSION,
    clock,
  });
  cleanup.add(() => inspection.stopInspecting());
  return inspection;
}

interface AppParts extends Pick<Upstreams, 'abandoned' | 'monitor'> {
  /** When the agent started, in milliseconds of `performance.now()`. */
  began: number;
  own: OwnEndpoint | null;
  connector: GatewayConnector;
  tunnels: TunnelManager;
  inspection: LazyInspection;
  sessions: BrowserSessions;
  extras: PageExtras;
}

/** What the API and the page show. */
function createApp({ settings, guard, addresses, clock, log }: Start, parts: AppParts): AppOptions {
  const { began, own, connector, abandoned, monitor, tunnels, inspection, sessions, extras } = parts;
  let metrics: Promise<Metrics> | null = null;
  const session = () => connector.status;
  const health = {
    tunnels,
    refreshUpstreams: (only?: UpstreamHealth) => monitor.refresh(only),
    upstreams: abandoned,
    remoteApi: own,
    session,
    version: VERSION,
    uptime: () => (performance.now() - began) / 1000,
    addresses: () => ({ ...addresses, agent: own?.url ?? null }),
  };
  const page = new DevicePage({
    sessions,
    ...extras,
    health,
    folder: PACKAGED_PAGES,
    canForwardTo: (port) => guard.allowsPort(port),
    site: settings.site,
    clock,
  });
  const measured = {
    tunnelCounts: () => tunnels.shownCounts(),
    traffic: () => tunnels.traffic,
    session,
    remoteApi: () => own?.status.state ?? null,
    abandoned: () => abandoned.count,
  };
  const loadOnce = () => {
    metrics ??= loadMetrics(measured);
    return metrics;
  };
  return { ...health, page, inspection, metrics: loadOnce, log };
}

async function openRequestLog(log: Log) {
  const { RequestLog } = await import('./inspector/request-log.ts');
  return new RequestLog(log);
}

/** @returns the folder for unix sockets */
async function openFolders(dataDir: string, log: Log, cleanup: CleanupStack): Promise<string> {
  const folder = await openDataFolder(dataDir);
  cleanup.add(() => folder.release());
  if (folder.unwritable !== null) {
    log.error(
      { folder: dataDir, reason: folder.unwritable },
      'data folder is read-only or full: tunnels cannot be created or deleted',
    );
  }
  const socketFolder = await openRuntimeFolder(dataDir);
  cleanup.add(() => rm(socketFolder, { recursive: true, force: true }));
  return socketFolder;
}

/** After the API has started, the connector opens the link to the gateway, and starts an embedded gateway, when it starts itself. */
function createConnector({ settings, guard, addresses, log, clock, cleanup }: Start) {
  const { gateway, dataDir, verifyUpstreamTls } = settings;
  let uplink: Promise<GatewayUplink> | null = null;
  let opened: GatewayUplink | null = null;
  // `started` rejects with the reason when it cannot be opened.
  cleanup.add(async () => (await uplink?.catch(() => null))?.stop());
  const open = async () => {
    uplink = openUplink(gateway, dataDir, log);
    opened = await uplink;
    const { addresses: gatewayAddresses, describePort, ...target } = opened;
    Object.assign(addresses, gatewayAddresses);
    guard.protectOwnPorts(describePort);
    const options = { ...target, verifyUpstreamTls, version: VERSION, log, clock };
    if (gateway.kind === 'embedded') return openLink(settings.connector, options);
    const renewal = new AuthtokenRenewal({ gateway, dataDir, clock, log });
    return renewal.over(await openLink(settings.connector, { ...options, authtoken: () => renewal.authtoken() }));
  };
  const watchAtUrl: WatchAtUrl = (url, watcher) => opened?.watchRequests(url, watcher) ?? null;
  const connector = new GatewayConnector({ gateway: gatewayName(gateway), openLink: open, clock, log });
  cleanup.add(() => connector.stop());
  return {
    connector,
    setGatewayLogLevel: async (level: LogLevel) => (await uplink)?.setLogLevel(level),
    trafficAt: (url: string) => opened?.trafficAt(url) ?? null,
    watchAtUrl,
  };
}

/** Serves the API on this device, and behind the agent's own endpoint if it has a domain. */
async function serveApi(app: AppOptions, own: OwnEndpoint | null, token: () => string, start: Start): Promise<void> {
  const { settings, guard, addresses, log, cleanup } = start;
  const { api } = settings;
  const servers: RunningServer[] = [];
  // Closed concurrently, so that both share one grace time.
  cleanup.add(() => {
    app.page.stop();
    app.inspection.stop();
    return Promise.all(servers.map((server) => server.close(API_GRACE_MS)));
  });
  if (own) {
    const remote = createRemoteApp(app, api.requireToken ? token : null);
    servers.push(await startServer(remote, { path: own.socket }, log));
  }
  const server = await startServer(createLocalApp(app, api.host, token), api, log);
  servers.push(server);
  addresses.api = `http://${server.address}`;
  if (server.port !== null && isLoopbackHost(api.host)) {
    guard.protectOwnPorts((port) => (port === server.port ? OWN_API : undefined));
  }
  log.info({ url: addresses.api }, 'local API listening');
  if (!isLoopbackHost(api.host)) warnOfNetwork(addresses.api, log);
}

function warnOfNetwork(url: string, log: Log): void {
  if (hasContainerNetwork()) log.info({ url }, 'API listens beyond this container: publish its port on 127.0.0.1 only');
  else log.warn({ url }, 'API and its token cross the network unencrypted; use AGENT_DOMAIN for remote access');
}

/** Loaded after the start, which it would slow down. */
async function loadMetrics(source: MetricsSource): Promise<Metrics> {
  const { Metrics } = await import('./api/metrics.ts');
  return new Metrics(source);
}

function announceRemote({ api }: Settings, file: string | null, log: Log): void {
  if (api.domain === null) return;
  if (!api.requireToken) {
    log.warn(
      { domain: api.domain },
      'remote API without authentication: anyone with the URL can create and delete tunnels',
    );
  } else if (file !== null) {
    log.info({ file }, 'remote API requires the API token in this file');
  }
}
