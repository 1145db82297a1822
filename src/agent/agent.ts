import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CleanupStack } from '../lib/cleanup-stack.ts';
import { openDataFolder } from '../lib/files/data-folder.ts';
import { DurableFile } from '../lib/files/durable-file.ts';
import { openRuntimeFolder } from '../lib/files/runtime-folder.ts';
import type { Log } from '../lib/log/log.ts';
import { type Clock, systemClock } from '../lib/time/clock.ts';
import { VERSION } from '../packaged.ts';
import { isCloudAddress, type Settings } from '../settings/agent-settings.ts';
import { ApiTokenInUse, openApiToken } from '../settings/api-token.ts';
import { LazyInspection } from './api/inspection/lazy-inspection.ts';
import type { SessionStatus } from './connectors/connector.ts';
import type { GatewayConnector } from './connectors/gateway-connector.ts';
import type { AgentCommand } from './connectors/gateway-link.ts';
import { type AgentStart, createConnector } from './gateway-uplink.ts';
import { OwnEndpoint } from './own-endpoint.ts';
import { openPageSessions } from './page-sessions.ts';
import { announceRemote, createApp, type PageExtras, serveApi } from './serve-api.ts';
import { ShareLinks } from './share-links.ts';
import { loadDefaultPolicies } from './tunnels/default-policies.ts';
import type { ShownState, TunnelStatus } from './tunnels/tunnel.ts';
import { TunnelManager, type TunnelManagerOptions } from './tunnels/tunnel-manager.ts';
import { TunnelStore, tunnelsCodec, tunnelsFile } from './tunnels/tunnels-file.ts';
import { AbandonedConnections } from './upstreams/abandoned-connections.ts';
import { connectUpstream } from './upstreams/connect-upstream.ts';
import { parseUpstream } from './upstreams/upstream.ts';
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
export interface AgentExtras extends PageExtras {
  /** Called when the operator of the gateway wants the agent to restart or stop; left out: not supported. */
  onCommand?: (command: AgentCommand) => void;
}

const NO_EXTRAS: AgentExtras = { logTail: null, diagnose: null };
const UPSTREAM_CONNECT_MS = 10_000;
/** The same for a check, for which nobody waits. */
const UPSTREAM_CHECK_MS = 3_000;

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
  const running = await launch({ settings, log, clock, extras, cleanup }).catch(undo);
  return { ...running, started: running.started.catch(undo), stop: () => cleanup.run() };
}

interface Launch extends Pick<AgentStart, 'settings' | 'log' | 'clock' | 'cleanup'> {
  extras: AgentExtras;
}

/** Each part needs those above it. They stop in the reverse order. */
async function launch({ settings, log, clock, extras, cleanup }: Launch): Promise<Omit<Agent, 'stop'>> {
  const began = performance.now();
  const { dataDir } = settings;
  const defaultPolicies = await loadDefaultPolicies(settings.defaultPolicies);
  const socketFolder = await openFolders(dataDir, log, cleanup);
  const apiToken = await ApiTokenInUse.open(settings, log);
  const guard = new UpstreamGuard(settings.allowUpstreams);
  const start: AgentStart = { settings, guard, addresses: {}, log, clock, cleanup };
  const uplink = createConnector(start, {
    onCommand: extras.onCommand,
    onRefusedAnswer: (forwardsTo, reason) => upstreams.dialer.answerRefused(forwardsTo, reason),
    onUploadLost: (url) => tunnels.changes.uploadLost(url).catch((err) => log.error({ err }, 'tunnel not reopened')),
  });
  const { connector } = uplink;
  const own = createOwnEndpoint(start, connector, socketFolder);
  const upstreams = createUpstreams(start, connector, socketFolder, (upstream) => tunnels.changes.relay(upstream));
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
  const shareLinks = new ShareLinks(uplink.apiAccess);
  const parts = { began, own, connector, ...upstreams, tunnels, inspection, sessions, shareLinks, extras };
  const app = createApp(start, parts);
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

function createOwnEndpoint({ settings, clock, log }: AgentStart, connector: GatewayConnector, socketFolder: string) {
  const { domain } = settings.api;
  return domain === null
    ? null
    : new OwnEndpoint({ connector, domain, socket: join(socketFolder, 'api.sock'), clock, log });
}

type Upstreams = ReturnType<typeof createUpstreams>;

/** @param relay takes the connections of an upstream through the agent */
function createUpstreams(
  { settings, guard, clock, log }: AgentStart,
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
    connect: ({ upstream, isHttp, tls = {} }) => connectUpstream(upstream, { ...checking, http2: !isHttp, tls }),
    request: (socket, { upstream, tls = {}, probes }) =>
      checkHttp(socket, upstream, { ...checking, tls, privateFile: tunnelsFile(settings.dataDir) }, probes),
    lookForClients: () => abandoned.lookForClients(),
    relay,
    lookForAbandoned: () => abandoned.look(),
    connector,
    clock,
  });
  connector.on('dialFailed', () => monitor.clientFailed());
  return { dialer, abandoned, monitor, connecting };
}

async function createTunnels(
  { settings, guard, log, clock }: AgentStart,
  {
    connector,
    trafficAt,
    warningsAt,
    watchAtUrl,
    dialer,
    defaultPolicies,
  }: Pick<ReturnType<typeof createConnector>, 'connector' | 'trafficAt' | 'warningsAt' | 'watchAtUrl'> &
    Pick<Upstreams, 'dialer'> &
    Pick<TunnelManagerOptions, 'defaultPolicies'>,
  removed: (id: string) => void,
): Promise<TunnelManager> {
  const { api, dataDir, tunnelsDir, site, gateway } = settings;
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
    warningsAt,
    watchAtUrl,
    removed,
    site,
    isCloud: gateway.kind === 'remote' && isCloudAddress(gateway.serverAddr),
    log,
    clock,
  });
}

function createInspection(
  { cleanup, clock }: AgentStart,
  tunnels: TunnelManager,
  { connecting }: Upstreams,
): LazyInspection {
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
  cleanup.add(() => inspection.stopInspecting());
  return inspection;
}

async function openRequestLog(log: Log) {
  const { RequestLog } = await import('./inspector/request-log.ts');
  return new RequestLog(log);
}

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
