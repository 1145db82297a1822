import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CleanupStack } from '../lib/cleanup-stack.ts';
import { openDataFolder } from '../lib/files/data-folder.ts';
import { DurableFile } from '../lib/files/durable-file.ts';
import { openRuntimeFolder } from '../lib/files/runtime-folder.ts';
import type { Log } from '../lib/log/log.ts';
import type { LogTail } from '../lib/log/log-tail.ts';
import { isLoopbackHost } from '../lib/network/ip-address.ts';
import { parseUpstream } from '../lib/network/upstream-address.ts';
import { type Clock, systemClock } from '../lib/time/clock.ts';
import { PACKAGED_PAGES, VERSION } from '../packaged.ts';
import { isCloudAddress, type Settings } from '../settings/agent-settings.ts';
import { ApiTokenInUse, openApiToken } from '../settings/api-token.ts';
import { loadDefaultPolicies } from '../traffic-policy/load-default-policies.ts';
import type { TunnelDetail } from './api/agent-operations.ts';
import { type AppOptions, createLocalApp, createRemoteApp } from './api/app.ts';
import { LazyInspection } from './api/inspection/lazy-inspection.ts';
import type { Metrics, MetricsSource } from './api/metrics.ts';
import { DevicePage } from './api/page/device-page.ts';
import type { PageFinding } from './api/page/page-routes.ts';
import { hasContainerNetwork, type RunningServer, startServer } from './api/server.ts';
import { presentStatus, type StatusReport } from './api/status-report.ts';
import { presentDetail, TunnelActions } from './api/tunnel-actions.ts';
import type { SessionStatus } from './connectors/connector.ts';
import { DataBudget } from './connectors/data-budget.ts';
import type { AgentCommand } from './connectors/gateway-link.ts';
import type { AgentContext } from './context/agent-context.ts';
import { createConnector } from './gateway-uplink.ts';
import { DeviceHistory } from './history/device-history.ts';
import { CaFollower } from './join/ca-follower.ts';
import { GatewayTime, timeFileIn } from './join/gateway-time.ts';
import { OwnEndpoint } from './own-endpoint.ts';
import { openPageSessions } from './page-sessions.ts';
import { ShareLinks } from './share-links.ts';
import type { ShownState, TunnelStatus } from './tunnels/tunnel.ts';
import type { TunnelView } from './tunnels/tunnel-list.ts';
import { TunnelManager } from './tunnels/tunnel-manager.ts';
import { TunnelStore, tunnelsCodec, tunnelsFile } from './tunnels/tunnels-file.ts';
import { AbandonedConnections } from './upstreams/abandoned-connections.ts';
import { connectUpstream } from './upstreams/connect-upstream.ts';
import { checkHttp } from './upstreams/upstream-check.ts';
import { UpstreamDialer } from './upstreams/upstream-dialer.ts';
import { UpstreamGuard } from './upstreams/upstream-guard.ts';
import type { UpstreamHealth } from './upstreams/upstream-health.ts';
import { UpstreamMonitor } from './upstreams/upstream-monitor.ts';
import { tlsOf } from './upstreams/upstream-tls.ts';

export interface AgentStatus {
  session: SessionStatus;
  tunnels: Readonly<Record<ShownState, number>>;
  /** The state of the agent's own domain; null without one. */
  remoteApi: TunnelStatus | null;
}

export interface Agent {
  /**
   * Resolves when the embedded gateway, if used, has started and the session supervisor runs. Rejects with an
   * {@link OperatorError} when either fails; by then the agent has stopped.
   */
  readonly started: Promise<void>;
  status(): AgentStatus;
  /** What `GET /status` answers. */
  report(): StatusReport;
  readonly tunnels: TunnelActions;
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
  stop(): Promise<void>;
}

/** What only the process around an agent can give it. */
export interface AgentExtras {
  logTail: LogTail | null;
  diagnose: (() => Promise<PageFinding[]>) | null;
  /** Called when the operator of the gateway wants the agent to restart or stop; left out: not supported. */
  onCommand?: (command: AgentCommand) => void;
  /** Called when the session is online or lost. */
  onSession?: () => void;
  /** Called when a tunnel has been created, and after its state or URL has changed. */
  onTunnel?: (tunnel: TunnelDetail) => void;
  /** False: no API on this device. */
  hasLocalApi?: boolean;
}

const NO_EXTRAS: AgentExtras = { logTail: null, diagnose: null };
const UPSTREAM_CONNECT_MS = 10_000;
/** The same for a check, for which nobody waits. */
const UPSTREAM_CHECK_MS = 3_000;
/** How long pending requests get to finish when the agent stops. */
const API_GRACE_MS = 1500;
/** Why tunnels may not forward there. */
const OWN_API = "the agent's own API, which clients would reach without a token; set AGENT_DOMAIN to publish it";

/**
 * Starts the agent: the API first, then everything that may take longer.
 *
 * @returns once the API answers
 * @throws {OperatorError} when the operator has to fix something first
 */
export async function startAgent(
  settings: Settings,
  log: Log,
  clock: Clock = systemClock,
  extras: AgentExtras = NO_EXTRAS,
): Promise<Agent> {
  const cleanup = new CleanupStack(log);
  const undo = async (error: unknown): Promise<never> => {
    // The operator needs the reason that the start failed; errors while stopping are in the log.
    await cleanup.run().catch(() => {});
    throw error;
  };
  const context = { settings, clock, log, onStop: (stop: () => unknown) => cleanup.add(stop) };
  const running = await launch(context, extras).catch(undo);
  return { ...running, started: running.started.catch(undo), stop: () => cleanup.run() };
}

/** Each part needs those above it. They stop in the reverse order. */
async function launch(context: AgentContext, extras: AgentExtras): Promise<Omit<Agent, 'stop'>> {
  const { settings, clock, log, onStop } = context;
  const { api, dataDir, tunnelsDir, site, gateway } = settings;
  const began = performance.now();

  // What an operator may have to fix comes first: the default policies, the folders, the API token.
  const defaultPolicies = await loadDefaultPolicies(settings.defaultPolicies);
  const folder = await openDataFolder(dataDir);
  onStop(() => folder.release());
  if (folder.unwritable !== null) {
    log.error(
      { folder: dataDir, reason: folder.unwritable },
      'data folder is read-only or full: tunnels cannot be created or deleted',
    );
  }
  const socketFolder = await openRuntimeFolder(dataDir);
  onStop(() => rm(socketFolder, { recursive: true, force: true }));
  const apiToken = await ApiTokenInUse.open(settings, log);
  const token = () => apiToken.token;

  // The connector. It opens the link to the gateway, and starts an embedded one, when it starts itself: at the end.
  const guard = new UpstreamGuard(settings.allowUpstreams);
  const time = new GatewayTime({ file: timeFileIn(dataDir), log });
  /** For `/status`: addresses of the agent and its gateway, added as they start. */
  const addresses: Record<string, string> = {};
  const budget =
    settings.dataBudget &&
    new DataBudget(settings.dataBudget, { file: join(dataDir, 'data-budget.json'), log, now: () => time.now() });
  onStop(() => budget?.close());
  const uplink = createConnector(context, {
    guard,
    time,
    budget,
    addresses,
    onCommand: extras.onCommand,
    onRefusedAnswer: (forwardsTo, reason) => dialer.answerRefused(forwardsTo, reason),
    onUploadLost: (url) => tunnels.changes.uploadLost(url).catch((err) => log.error({ err }, 'tunnel not reopened')),
  });
  const { connector, trafficAt, warningsAt, watchAtUrl } = uplink;
  const own =
    api.domain === null
      ? null
      : new OwnEndpoint(context, { connector, domain: api.domain, socket: join(socketFolder, 'api.sock') });

  // Upstreams: how they are reached, and which of them hang.
  const connection = { guard, verifyTls: settings.verifyUpstreamTls, upstreamCas: settings.systemCas };
  const connecting = { ...connection, connectMs: UPSTREAM_CONNECT_MS };
  const checking = { ...connection, connectMs: UPSTREAM_CHECK_MS };
  const dialer = new UpstreamDialer({ ...connecting, log, socketFolder });
  const { healths } = dialer;
  /** Takes the connections of an upstream through the agent. */
  const relay = (upstream: UpstreamHealth) => tunnels.changes.relay(upstream);
  const abandoned = new AbandonedConnections(
    context,
    healths,
    (upstream) => void relay(upstream).catch((err) => log.error({ err }, 'tunnel not reopened')),
  );
  // Before tunnels are bound again: those whose upstream hangs go through the agent.
  connector.on('offline', () => abandoned.look()).on('online', () => abandoned.sessionStarted());
  const monitor = new UpstreamMonitor({
    healths,
    connect: ({ upstream, isHttp, tls = {} }) => connectUpstream(upstream, { ...checking, http2: !isHttp, tls }),
    request: (socket, { upstream, tls = {}, probes }) =>
      checkHttp(socket, upstream, { ...checking, tls, privateFile: tunnelsFile(dataDir) }, probes),
    abandoned,
    relay,
    connector,
    clock,
  });
  connector.on('dialFailed', () => monitor.clientFailed());

  // Tunnels, and what looks into their traffic.
  const requestLog = settings.logRequests ? await openRequestLog(log) : null;
  const reservedDomains = api.domain === null ? [] : [api.domain];
  const { onTunnel } = extras;
  const tunnels = new TunnelManager(context, {
    ...{ connector, guard, dialer, defaultPolicies, reservedDomains, trafficAt, warningsAt, watchAtUrl, site },
    store: new TunnelStore(new DurableFile({ path: tunnelsFile(dataDir), codec: tunnelsCodec, log })),
    declare: async (store) => {
      if (tunnelsDir === null) return;
      const { applyDeclaredTunnels } = await import('./tunnels/declared-tunnels.ts');
      await applyDeclaredTunnels(store, { folder: tunnelsDir, rules: { defaultPolicies, reservedDomains, site }, log });
    },
    requestLog: requestLog && ((url) => requestLog.connection(url)),
    removed: (id) => inspection.forget(id),
    ...(onTunnel && { changed: (view: TunnelView) => onTunnel(presentDetail(view, tunnels)) }),
    isCloud: gateway.kind === 'remote' && isCloudAddress(gateway.serverAddr),
  });
  const inspection = new LazyInspection({
    tunnels,
    observe: (id, capture) => tunnels.changes.captureBy(id, capture),
    watchRequests: (id, onLine) => tunnels.watchRequests(id, onLine),
    connect: (tunnel) => {
      const upstream = parseUpstream(tunnel.forwards_to);
      return connectUpstream(upstream, { ...connecting, tls: tlsOf(upstream, tunnel) });
    },
    version: VERSION,
    clock,
  });
  onStop(() => inspection.stopInspecting());
  // Registered first, so that the agent's own endpoint is bound first on each session.
  own?.start();
  onStop(() => own?.stop());
  const sessionChanged = () => extras.onSession?.();
  connector.on('online', sessionChanged).on('offline', sessionChanged);
  await tunnels.start();
  onStop(() => tunnels.stop());
  monitor.start();
  onStop(() => monitor.stop());
  const history = new DeviceHistory(context, {
    ...{ file: join(dataDir, 'history.jsonl'), dataDir, isOnline: () => connector.isOnline, time: () => time.now() },
    reportAway: async (times) => {
      if (await connector.reportAway(times)) return true;
      const access = uplink.apiAccess();
      if (access === null) return false;
      // Loaded on demand: few agents need it.
      const { reportAwayByApi } = await import('./join/report-away.ts');
      return reportAwayByApi(access, times);
    },
    tunnels: () =>
      tunnels.list().map((view) => ({
        ...{ id: view.tunnel.id, state: view.status.state, traffic: tunnels.reports.traffic(view) },
      })),
  });
  await history.start();
  const follower = new CaFollower(context, uplink.apiAccess, () => uplink.linkKind() === 'metered');
  connector.on('online', () => follower.online());
  onStop(() => follower.stop());
  connector.on('online', () => history.sessionChanged(true)).on('offline', () => history.sessionChanged(false));
  onStop(() => history.stop());

  // The API, before the connector: it says how the start goes on. On this device, and behind the agent's own endpoint.
  const sessions = await openPageSessions(dataDir, token, log, () => time.now());
  const session = () => connector.status;
  const health = {
    ...{ tunnels, monitor, upstreams: abandoned, remoteApi: own, session, version: VERSION },
    time: () => time.report(),
    budget: () => budget?.state ?? null,
    uptime: () => (performance.now() - began) / 1000,
    addresses: () => ({ ...addresses, agent: own?.url ?? null }),
  };
  const { logTail, diagnose } = extras;
  const page = new DevicePage({
    ...{ sessions, logTail, diagnose, health, site, clock, isMetered: () => uplink.linkKind() === 'metered' },
    folder: PACKAGED_PAGES,
    canForwardTo: (port) => guard.allowsPort(port),
  });
  let loading: Promise<Metrics> | null = null;
  const metrics = () => {
    loading ??= openMetrics({
      tunnelCounts: () => tunnels.shownCounts(),
      traffic: () => tunnels.traffic,
      session,
      remoteApi: () => own?.status.state ?? null,
      budget: () => budget?.state ?? null,
      abandoned: () => abandoned.count,
    });
    return loading;
  };
  const app: AppOptions = {
    ...health,
    history,
    page,
    inspection,
    shareLinks: new ShareLinks(uplink.apiAccess),
    metrics,
    log,
  };
  const servers: RunningServer[] = [];
  // Closed concurrently, so that both share one grace time.
  onStop(() => {
    page.stop();
    inspection.stop();
    return Promise.all(servers.map((server) => server.close(API_GRACE_MS)));
  });
  if (own) {
    const remote = createRemoteApp(app, api.requireToken ? token : null);
    servers.push(await startServer(remote, { path: own.socket }, log));
  }
  if (extras.hasLocalApi !== false) {
    const server = await startServer(createLocalApp(app, api.host, token), api, log);
    servers.push(server);
    const url = `http://${server.address}`;
    addresses.api = url;
    if (server.port !== null && isLoopbackHost(api.host)) guard.protectOwnPorts(new Map([[server.port, OWN_API]]));
    log.info({ url }, 'local API listening');
    if (!isLoopbackHost(api.host) && hasContainerNetwork())
      log.info({ url }, 'API listens beyond this container: publish its port on 127.0.0.1 only');
    else if (!isLoopbackHost(api.host))
      log.warn({ url }, 'API and its token cross the network unencrypted; use AGENT_DOMAIN for remote access');
  }
  if (api.domain !== null && !api.requireToken) {
    log.warn(
      { domain: api.domain },
      'remote API without authentication: anyone with the URL can create and delete tunnels',
    );
  } else if (api.domain !== null && apiToken.file !== null) {
    log.info({ file: apiToken.file }, 'remote API requires the API token in this file');
  }

  return {
    started: Promise.all([connector.start(), metrics()]).then(() => {}),
    status: () => ({ session: connector.status, tunnels: tunnels.shownCounts(), remoteApi: own?.status ?? null }),
    report: () => presentStatus(health),
    tunnels: new TunnelActions(tunnels, monitor),
    addresses: health.addresses,
    silentMs: () => connector.silentMs,
    reload: async (next) => {
      const policies = await loadDefaultPolicies(next.defaultPolicies);
      const changed = await openApiToken({ ...next, dataDir });
      await tunnels.policies.useDefaults(policies);
      // Somebody who knows the old token may have signed in with it. If that cannot be saved, the file is void under the
      // new token all the same.
      if (apiToken.use(changed)) await sessions.endAll().catch(() => {});
      log.level = next.log.level;
      void follower.look();
      await uplink.setGatewayLogLevel(next.log.level);
    },
  };
}

async function openRequestLog(log: Log) {
  const { RequestLog } = await import('./inspector/request-log.ts');
  return new RequestLog(log);
}

async function openMetrics(source: MetricsSource): Promise<Metrics> {
  const { Metrics } = await import('./api/metrics.ts');
  return new Metrics(source);
}
