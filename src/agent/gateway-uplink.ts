import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { createFolder } from '../lib/files/durable-write.ts';
import type { Log, LogLevel } from '../lib/log/log.ts';
import { hostPort } from '../lib/network/ip-address.ts';
import { NO_PROXIES } from '../lib/network/proxy-rules.ts';
import { startError } from '../lib/process/start-error.ts';
import { VERSION } from '../packaged.ts';
import type { GatewaySettings } from '../settings/agent-settings.ts';
import { AuthtokenRenewal } from './authtoken-renewal.ts';
import type { DataBudget } from './connectors/data-budget.ts';
import { GatewayConnector } from './connectors/gateway-connector.ts';
import type { GatewayLinkOptions } from './connectors/gateway-link.ts';
import { CLOUD_ADDRESS, parseGatewayAddress } from './connectors/gateway-socket.ts';
import { type LinkPace, openLinkPace } from './connectors/link-pace.ts';
import type { AgentContext } from './context/agent-context.ts';
import type { ApiAccess } from './join/gateway-calls.ts';
import type { GatewayTime } from './join/gateway-time.ts';
import { openLink, sessionTime } from './open-link.ts';
import type { WatchAtUrl } from './tunnels/request-watches.ts';
import type { Traffic } from './upstreams/traffic-counters.ts';
import type { OwnPorts, UpstreamGuard } from './upstreams/upstream-guard.ts';

/** What sessions need to know of their gateway, embedded or not. */
interface GatewayUplink
  extends Pick<GatewayLinkOptions, 'authtoken' | 'serverAddr' | 'authorities' | 'proxies' | 'time'> {
  /** For `/status`. */
  addresses: Record<string, string>;
  setLogLevel(level: LogLevel): void;
  /** What the gateway listens on in this process. */
  ownPorts: OwnPorts;
  /** What the gateway has counted at the URL of a tunnel; null: unknown. */
  trafficAt(url: string): Traffic | null;
  /** What the gateway takes for mistakes in the policy at the URL of a tunnel; the SDK does not tell. */
  warningsAt(url: string): readonly string[];
  /** Reports of the requests at the URL of a tunnel; null: the gateway is elsewhere, or has no such URL. */
  watchRequests: WatchAtUrl;
  stop(): Promise<void>;
}

/** What a gateway in this process tells the agent of upstreams. */
interface EdgeReports {
  /** It has refused a response, for this reason. */
  onRefusedAnswer(forwardsTo: string, reason: string): void;
  /** The upstream of the tunnel with this URL has closed its connection during an upload, with no answer that arrived. */
  onUploadLost(url: string): Promise<void>;
}

interface Embedding extends EdgeReports {
  dataDir: string;
  log: Log;
}

/** The embedded gateway listens nowhere else. */
const NO_IPV4_LOOPBACK =
  'give this machine the address 127.0.0.1 (ip addr add 127.0.0.1/8 dev lo), or use a gateway elsewhere: set NGROK_AUTHTOKEN';
const LOOP = ': the tunnel would forward to itself';

/** The connector opens the link to the gateway, and starts an embedded one, when it starts itself: after the API. */
export function createConnector(
  context: AgentContext,
  own: EdgeReports &
    Pick<GatewayLinkOptions, 'onCommand'> & {
      guard: UpstreamGuard;
      time: GatewayTime;
      /** Null: no limit. */
      budget: DataBudget | null;
      /** For `/status`: those of the gateway are added when it has started. */
      addresses: Record<string, string>;
    },
) {
  const { settings, log, clock, onStop } = context;
  const { guard, time, budget, addresses, onRefusedAnswer, onUploadLost, onCommand } = own;
  const { gateway, dataDir } = settings;
  let uplink: Promise<GatewayUplink> | null = null;
  let opened: GatewayUplink | null = null;
  let pace: LinkPace | null = null;
  let authtoken = () => '';
  // `started` rejects with the reason when it cannot be opened.
  onStop(async () => (await uplink?.catch(() => null))?.stop());
  const open = async () => {
    uplink = openUplink(gateway, time, { dataDir, log, onRefusedAnswer, onUploadLost });
    opened = await uplink;
    const { addresses: gatewayAddresses, ownPorts, ...target } = opened;
    Object.assign(addresses, gatewayAddresses);
    guard.protectOwnPorts(ownPorts);
    const onDialFailed = () => void connector.emit('dialFailed');
    const own = { kind: settings.link, isFixed: budget !== null };
    pace = await openLinkPace(own, join(dataDir, 'link.json'), context);
    const options = {
      ...target,
      onDialFailed,
      onCommand,
      pace,
      budget: (await budget?.open()) ?? null,
      version: VERSION,
      log,
      clock,
    };
    authtoken = opened.authtoken;
    if (gateway.kind === 'embedded') return openLink(settings.connector, options);
    const renewal = new AuthtokenRenewal(context, { ...gateway, time });
    authtoken = () => renewal.authtoken();
    return renewal.over(await openLink(settings.connector, { ...options, authtoken }));
  };
  const apiAccess = (): ApiAccess | null => {
    if (opened === null) return null;
    const { authorities, proxies, serverAddr, addresses: known } = opened;
    const enrolment = gateway.kind === 'remote' ? gateway.enrolment : null;
    const apiUrl = known.gateway_api ?? null;
    const ownCa = gateway.kind === 'remote' ? gateway.ownCa : null;
    return { authtoken, serverAddr, authorities, proxies, time, enrolment, apiUrl, ownCa };
  };
  const watchAtUrl: WatchAtUrl = (url, watcher) => opened?.watchRequests(url, watcher) ?? null;
  const connector: GatewayConnector = new GatewayConnector(context, gatewayName(gateway), open);
  onStop(() => connector.stop());
  return {
    connector,
    setGatewayLogLevel: async (level: LogLevel) => (await uplink)?.setLogLevel(level),
    trafficAt: (url: string) => opened?.trafficAt(url) ?? null,
    warningsAt: (url: string) => opened?.warningsAt(url) ?? [],
    watchAtUrl,
    apiAccess,
    linkKind: () => pace?.kind ?? settings.link,
  };
}

/** Names the gateway before its uplink is open. */
function gatewayName(gateway: GatewaySettings): string {
  if (gateway.kind === 'embedded') return 'the embedded gateway';
  const { host, port } = parseGatewayAddress(gateway.serverAddr ?? CLOUD_ADDRESS);
  return hostPort(host, port);
}

/**
 * Starts the gateway if it is the embedded one.
 *
 * @throws {OperatorError} when it cannot start
 */
async function openUplink(gateway: GatewaySettings, time: GatewayTime, embedding: Embedding): Promise<GatewayUplink> {
  if (gateway.kind === 'embedded') return openEmbeddedGateway(gateway, embedding);
  const { authtoken, serverAddr, authorities, proxies } = gateway;
  return {
    authtoken,
    serverAddr,
    authorities,
    proxies,
    time: sessionTime(gateway, time),
    addresses: {},
    setLogLevel: () => {},
    ownPorts: new Map(),
    trafficAt: () => null,
    warningsAt: () => [],
    watchRequests: () => null,
    stop: async () => {},
  };
}

/** The only place that loads the gateway's code: agents with another gateway never pay for it. */
async function openEmbeddedGateway(
  settings: Extract<GatewaySettings, { kind: 'embedded' }>,
  { dataDir, log, onRefusedAnswer, ...reports }: Embedding,
): Promise<GatewayUplink> {
  const { startGateway } = await import('../gateway/gateway.ts');
  const host = '127.0.0.1';
  // The agent logs the same events of its one session.
  const quieter = (level: string) => (level === 'info' ? 'warn' : level);
  const quiet = log.child({ part: 'gateway' }, { level: quieter(log.level) });
  const onUploadLost = async (url: string) => {
    // One that ends with its session says nothing of the upstream.
    await setImmediate();
    if (gateway.endpoints.atUrl(url).length > 0) await reports.onUploadLost(url);
  };
  // Policies are this device's own: its card is spared a write for each tunnel.
  const own = { dataDir, host, sessionPort: 0, recordsPolicies: false, onRefusedAnswer, onUploadLost, log: quiet };
  const options = { ...settings, ...own };
  const folder = join(dataDir, 'gateway');
  const gateway = await createFolder(folder, 0o755)
    .then(() => startGateway(options))
    .catch((error: unknown) => {
      const portSettings = 'GATEWAY_HTTPS_PORT and GATEWAY_HTTP_PORT';
      throw startError(error, { what: 'the embedded gateway', portSettings, addressAdvice: NO_IPV4_LOOPBACK, folder });
    });
  log.info(
    {
      reason: settings.chosen ? 'AGENT_GATEWAY=embedded' : 'NGROK_AUTHTOKEN is not set',
      https_port: gateway.httpsPort,
      http_port: gateway.httpPort,
      ca_file: gateway.caFile,
    },
    'using the embedded gateway: tunnels are reachable from this machine only',
  );
  const authtoken = await gateway.issueAuthtoken();
  const ports = new Map([
    [gateway.httpsPort, 'https port'],
    [gateway.httpPort, 'http port'],
  ]);
  if (gateway.sessionPort !== null) ports.set(gateway.sessionPort, 'session port');
  return {
    authtoken: () => authtoken,
    serverAddr: gateway.sessionAddress,
    authorities: { pem: gateway.sessionCa },
    proxies: NO_PROXIES,
    time: null,
    addresses: {
      gateway_https: `${host}:${gateway.httpsPort}`,
      gateway_http: `${host}:${gateway.httpPort}`,
      gateway_api: gateway.apiUrl,
      gateway_ca: gateway.caFile,
    },
    setLogLevel: (level) => {
      quiet.level = quieter(level);
    },
    ownPorts: {
      get: (port) => {
        const what = ports.get(port) ?? (gateway.endpoints.onTcpPort(port) && 'port of a tcp tunnel');
        return what && `the embedded gateway's ${what}${LOOP}`;
      },
    },
    trafficAt: (url) => {
      const [endpoint] = gateway.endpoints.atUrl(url);
      return endpoint ? trafficOf(endpoint.traffic) : null;
    },
    warningsAt: (url) => gateway.endpoints.atUrl(url)[0]?.policy.warnings ?? [],
    watchRequests: (url, watcher) => {
      const [endpoint] = gateway.endpoints.atUrl(url);
      if (!endpoint) return null;
      const queue = endpoint.watchRequests({
        take: (lines) => {
          for (const line of lines.trimEnd().split('\n')) watcher.onLine(line);
          return true;
        },
        hold: () => {},
        end: () => {
          queue.close();
          watcher.onEnd();
        },
      });
      return () => queue.close();
    },
    stop: () => gateway.close(),
  };
}

function trafficOf({
  requests,
  received,
  sent,
  lastAt,
}: Record<'requests' | 'received' | 'sent' | 'lastAt', number>): Traffic {
  return {
    connections: null,
    requests,
    bytesIn: received,
    bytesOut: sent,
    lastAt: lastAt === 0 ? null : new Date(lastAt),
  };
}
