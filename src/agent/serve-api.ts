import type { BrowserSessions } from '../lib/http/browser-sessions.ts';
import type { Log } from '../lib/log/log.ts';
import type { LogTail } from '../lib/log/log-tail.ts';
import { isLoopbackHost } from '../lib/network/ip-address.ts';
import { PACKAGED_PAGES, VERSION } from '../packaged.ts';
import type { Settings } from '../settings/agent-settings.ts';
import { type AppOptions, createLocalApp, createRemoteApp } from './api/app.ts';
import type { LazyInspection } from './api/inspection/lazy-inspection.ts';
import type { Metrics, MetricsSource } from './api/metrics.ts';
import { DevicePage } from './api/page/device-page.ts';
import type { PageFinding } from './api/page/page-routes.ts';
import { hasContainerNetwork, type RunningServer, startServer } from './api/server.ts';
import type { GatewayConnector } from './connectors/gateway-connector.ts';
import type { AgentStart } from './gateway-uplink.ts';
import type { OwnEndpoint } from './own-endpoint.ts';
import type { ShareLinks } from './share-links.ts';
import type { TunnelManager } from './tunnels/tunnel-manager.ts';
import type { AbandonedConnections } from './upstreams/abandoned-connections.ts';
import type { UpstreamMonitor } from './upstreams/upstream-monitor.ts';

export interface PageExtras {
  logTail: LogTail | null;
  diagnose: (() => Promise<PageFinding[]>) | null;
}

/** How long pending requests get to finish when the agent stops. */
const API_GRACE_MS = 1500;
/** Why tunnels may not forward there. */
const OWN_API = "the agent's own API, which clients would reach without a token; set AGENT_DOMAIN to publish it";

export interface AppParts {
  abandoned: AbandonedConnections;
  monitor: UpstreamMonitor;
  /** When the agent started, in milliseconds of `performance.now()`. */
  began: number;
  own: OwnEndpoint | null;
  connector: GatewayConnector;
  tunnels: TunnelManager;
  inspection: LazyInspection;
  sessions: BrowserSessions;
  shareLinks: ShareLinks;
  extras: PageExtras;
}

export function createApp({ settings, guard, addresses, clock, log }: AgentStart, parts: AppParts): AppOptions {
  const { began, own, connector, abandoned, monitor, tunnels, inspection, sessions, shareLinks, extras } = parts;
  const session = () => connector.status;
  const health = {
    tunnels,
    monitor,
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
  let metrics: Promise<Metrics> | null = null;
  const loadMetrics = () => {
    metrics ??= openMetrics(measured);
    return metrics;
  };
  return { ...health, page, inspection, shareLinks, metrics: loadMetrics, log };
}

/** Serves the API on this device, and behind the agent's own endpoint if it has a domain. */
export async function serveApi(
  app: AppOptions,
  own: OwnEndpoint | null,
  token: () => string,
  { settings, guard, addresses, log, cleanup }: AgentStart,
): Promise<void> {
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
    guard.protectOwnPorts(new Map([[server.port, OWN_API]]));
  }
  log.info({ url: addresses.api }, 'local API listening');
  if (!isLoopbackHost(api.host)) warnOfNetwork(addresses.api, log);
}

function warnOfNetwork(url: string, log: Log): void {
  if (hasContainerNetwork()) log.info({ url }, 'API listens beyond this container: publish its port on 127.0.0.1 only');
  else log.warn({ url }, 'API and its token cross the network unencrypted; use AGENT_DOMAIN for remote access');
}

async function openMetrics(source: MetricsSource): Promise<Metrics> {
  const { Metrics } = await import('./api/metrics.ts');
  return new Metrics(source);
}

export function announceRemote({ api }: Settings, file: string | null, log: Log): void {
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
