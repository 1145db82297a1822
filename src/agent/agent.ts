import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, systemClock } from '../lib/clock.ts';
import { createFolder } from '../lib/create-folder.ts';
import { explainStart } from '../lib/explain-start.ts';
import type { Log, LogLevel } from '../lib/log.ts';
import { NO_PROXIES } from '../lib/proxy-rules.ts';
import type { GatewaySettings, Settings } from '../settings/agent-settings.ts';
import { VERSION } from '../version.ts';
import { type AppOptions, createLocalApp, createRemoteApp } from './api/app.ts';
import { isLoopbackHost } from './api/host-guard.ts';
import { Metrics } from './api/metrics.ts';
import { type RunningServer, startServer } from './api/server.ts';
import { type ApiToken, openApiToken } from './api-token.ts';
import type { SessionStatus } from './connector/connector.ts';
import { NgrokConnector, type NgrokConnectorOptions } from './connector/ngrok-connector.ts';
import { OwnEndpoint } from './own-endpoint.ts';
import { Teardown } from './teardown.ts';
import { openDataFolder } from './tunnels/data-folder.ts';
import { loadDefaultPolicies } from './tunnels/default-policies.ts';
import { DurableFile } from './tunnels/durable-file.ts';
import { openRuntimeFolder } from './tunnels/runtime-folder.ts';
import type { TunnelState } from './tunnels/tunnel.ts';
import { TunnelManager } from './tunnels/tunnel-manager.ts';
import { TunnelStore, tunnelsCodec } from './tunnels/tunnel-store.ts';
import { UpstreamDialer } from './tunnels/upstream-dialer.ts';
import { UpstreamGuard } from './tunnels/upstream-guard.ts';

/** What there is to say of an agent in one line. */
export interface AgentStatus {
  session: SessionStatus;
  tunnels: Readonly<Record<TunnelState, number>>;
}

/** A running agent. */
export interface Agent {
  status(): AgentStatus;
  /** Milliseconds since the keeping of its session last made a step, online or not. */
  silentMs(): number;
  /**
   * Takes over log level, default policies and API token; tunnels without a policy of their own are opened anew when
   * the default policies have changed.
   *
   * @throws {OperatorError} when one of them cannot be used; then everything stays as it was
   */
  reload(settings: Settings): Promise<void>;
  /** Ends everything in good order; the tunnels stay on the disk. */
  stop(): Promise<void>;
}

/** Where the session goes, whichever gateway that is. */
interface Uplink extends Pick<NgrokConnectorOptions, 'authtoken' | 'serverAddr' | 'authorities' | 'proxies'> {
  /** For `/status`. */
  addresses: Record<string, string>;
  /** Follows the agent's log level. */
  setLogLevel(level: LogLevel): void;
  /** What a port on loopback is if it listens there. */
  whatIsPort(port: number): string | undefined;
  stop(): Promise<void>;
}

/** Milliseconds that requests under way get to finish when the agent stops. */
const API_GRACE_MS = 1500;
const UPSTREAM_CONNECT_MS = 10_000;
/** Why tunnels may not lead there. */
const OWN_API = "the agent's own API, which strangers would reach without a token; set AGENT_DOMAIN to reach it";
const LOOP = ': a tunnel to it would lead back into itself';

/**
 * Starts the agent: first its API, then everything that may take its time.
 *
 * @param clock what reconnecting and retrying go by
 * @throws {OperatorError} when something is in the way that the operator has to mend
 */
export async function startAgent(settings: Settings, log: Log, clock: Clock = systemClock): Promise<Agent> {
  const parts = new Teardown(log);
  try {
    const running = await startParts(settings, log, clock, parts);
    return { ...running, stop: () => parts.stop() };
  } catch (error) {
    // What stood in the way of the start is what the operator has to know; the rest is in the log.
    await parts.stop().catch(() => {});
    throw error;
  }
}

async function startParts(settings: Settings, log: Log, clock: Clock, parts: Teardown): Promise<Omit<Agent, 'stop'>> {
  const started = performance.now();
  const { api, dataDir } = settings;
  const defaultPolicies = await loadDefaultPolicies(settings.defaultPolicies);
  const folder = await openDataFolder(dataDir);
  parts.add(() => folder.release());
  if (folder.readOnly) {
    log.error(
      { folder: dataDir },
      'THE DATA FOLDER IS READ-ONLY: tunnels stay as they are on the disk, and none can be created or deleted; ' +
        'look at dmesg, check the card, then: mount -o remount,rw',
    );
  }
  const socketFolder = await openRuntimeFolder(dataDir);
  parts.add(() => rm(socketFolder, { recursive: true, force: true }));
  let apiToken = await openApiToken(settings);
  const uplink = await openUplink(settings.gateway, dataDir, log);
  parts.add(() => uplink.stop());
  const connector = openConnector(uplink, settings, log, clock);
  parts.add(() => connector.stop());

  const own =
    api.domain === null
      ? null
      : new OwnEndpoint({ connector, domain: api.domain, socket: join(socketFolder, 'api.sock'), clock, log });
  const guard = new UpstreamGuard(settings.allowUpstreams);
  guard.protectOwnPorts((port) => uplink.whatIsPort(port));
  const tunnels = new TunnelManager({
    connector,
    store: new TunnelStore(new DurableFile({ path: join(dataDir, 'tunnels.json'), codec: tunnelsCodec, log })),
    guard,
    dialer: new UpstreamDialer({
      guard,
      log,
      socketFolder,
      verifyTls: settings.verifyUpstreamTls,
      connectMs: UPSTREAM_CONNECT_MS,
    }),
    defaultPolicies,
    reservedDomains: api.domain === null ? [] : [api.domain],
    log,
    clock,
  });
  // The agent's own endpoint is first in line when the session comes up.
  own?.start();
  parts.add(() => own?.stop());
  await tunnels.start();
  parts.add(() => tunnels.stop());

  const addresses: Record<string, string> = { ...uplink.addresses };
  const app: AppOptions = {
    tunnels,
    session: () => connector.status,
    metrics: new Metrics({ tunnelCounts: () => tunnels.counts(), session: () => connector.status }),
    version: VERSION,
    uptime: () => (performance.now() - started) / 1000,
    addresses: () => ({ ...addresses, agent: own?.url ?? null }),
    log,
  };
  const servers: RunningServer[] = [];
  // Together, so that requests on one side do not use up the time of those on the other.
  parts.add(() => Promise.all(servers.map((server) => server.close(API_GRACE_MS))));
  if (own) {
    const remote = createRemoteApp(app, api.requireToken ? () => apiToken.token : null);
    servers.push(await startServer(remote, { path: own.socket }, log));
  }
  const server = await startServer(
    createLocalApp(app, api.host, () => apiToken.token),
    api,
    log,
  );
  servers.push(server);
  addresses.api = `http://${server.address}`;
  if (server.port !== null && isLoopbackHost(api.host)) {
    guard.protectOwnPorts((port) => (port === server.port ? OWN_API : undefined));
  }
  log.info({ url: addresses.api }, 'the local API is up');
  announceRemote(settings, apiToken, log);
  connector.start();
  return {
    status: () => ({ session: connector.status, tunnels: tunnels.counts() }),
    silentMs: () => connector.silentMs,
    reload: async (next) => {
      const policies = await loadDefaultPolicies(next.defaultPolicies);
      const token = await openApiToken({ ...next, dataDir });
      await tunnels.useDefaultPolicies(policies);
      apiToken = token;
      log.level = next.log.level;
      uplink.setLogLevel(next.log.level);
    },
  };
}

async function openUplink(gateway: GatewaySettings, dataDir: string, log: Log): Promise<Uplink> {
  if (gateway.kind === 'embedded') return openEmbeddedGateway(gateway, dataDir, log);
  const { authtoken, serverAddr, authorities, proxies } = gateway;
  return {
    authtoken,
    serverAddr,
    authorities,
    proxies,
    addresses: {},
    setLogLevel: () => {},
    whatIsPort: () => undefined,
    stop: async () => {},
  };
}

/** The gateway's code is loaded here alone: an agent that uses another gateway never pays for it. */
async function openEmbeddedGateway(
  settings: Extract<GatewaySettings, { kind: 'embedded' }>,
  dataDir: string,
  log: Log,
): Promise<Uplink> {
  const { startGateway } = await import('../gateway/gateway.ts');
  const host = '127.0.0.1';
  // What the gateway has to say of its one session, the agent says too.
  const quieter = (level: string) => (level === 'info' ? 'warn' : level);
  const quiet = log.child({ part: 'gateway' }, { level: quieter(log.level) });
  const options = { ...settings, dataDir, host, sessionPort: 0, log: quiet };
  const folder = join(dataDir, 'gateway');
  const gateway = await createFolder(folder, 0o755)
    .then(() => startGateway(options))
    .catch((error: unknown) => {
      const portSettings = 'GATEWAY_HTTPS_PORT and GATEWAY_HTTP_PORT';
      throw explainStart(error, { what: 'the embedded gateway', portSettings, folder });
    });
  log.info(
    { https: gateway.httpsPort, http: gateway.httpPort, ca: gateway.caFile },
    `${settings.chosen ? 'AGENT_GATEWAY=embedded' : 'no NGROK_AUTHTOKEN is set'}: using the embedded gateway, ` +
      'tunnels are reachable from this machine only',
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
    addresses: {
      gateway_https: `${host}:${gateway.httpsPort}`,
      gateway_http: `${host}:${gateway.httpPort}`,
      gateway_api: gateway.apiUrl,
      gateway_ca: gateway.caFile,
    },
    setLogLevel: (level) => {
      quiet.level = quieter(level);
    },
    whatIsPort: (port) => {
      const what = ports.get(port) ?? (gateway.endpoints.onTcpPort(port) && 'port of a tcp tunnel');
      return what && `the embedded gateway's ${what}${LOOP}`;
    },
    stop: () => gateway.close(),
  };
}

function openConnector(uplink: Uplink, { verifyUpstreamTls }: Settings, log: Log, clock: Clock): NgrokConnector {
  const { authtoken, serverAddr, authorities, proxies } = uplink;
  const target = { authtoken, serverAddr, authorities, proxies };
  return new NgrokConnector({ ...target, verifyUpstreamTls, version: VERSION, log, clock });
}

function announceRemote({ api }: Settings, { file }: ApiToken, log: Log): void {
  if (api.domain === null) return;
  if (!api.requireToken) {
    log.warn(
      { domain: api.domain },
      'AGENT_API_AUTH=none: anyone who knows the domain may open and delete tunnels on this device',
    );
  } else if (file !== null) {
    log.info({ file }, 'remote calls need the token in this file: Authorization: Bearer <token>');
  }
}
