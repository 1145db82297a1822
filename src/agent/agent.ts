import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, systemClock } from '../lib/clock.ts';
import { OperatorError } from '../lib/errors.ts';
import type { Log, LogLevel } from '../lib/log.ts';
import { isLoopbackHost } from '../lib/loopback-host.ts';
import { Teardown } from '../lib/teardown.ts';
import type { Settings } from '../settings/agent-settings.ts';
import { VERSION } from '../version.ts';
import { type AppOptions, createLocalApp, createRemoteApp } from './api/app.ts';
import type { Metrics, MetricsSource } from './api/metrics.ts';
import { type RunningServer, startServer } from './api/server.ts';
import { type ApiToken, openApiToken, tokenOfNobody } from './api-token.ts';
import type { SessionStatus } from './connectors/connector.ts';
import { NgrokConnector } from './connectors/sdk/ngrok-connector.ts';
import { openDataFolder } from './folders/data-folder.ts';
import { openRuntimeFolder } from './folders/runtime-folder.ts';
import { OwnEndpoint } from './own-endpoint.ts';
import { loadDefaultPolicies } from './tunnels/default-policies.ts';
import { DurableFile } from './tunnels/durable-file.ts';
import type { TunnelState } from './tunnels/tunnel.ts';
import { TunnelManager } from './tunnels/tunnel-manager.ts';
import { TunnelStore, tunnelsCodec, tunnelsFile } from './tunnels/tunnel-store.ts';
import { gatewayName, openUplink, type Uplink } from './uplink.ts';
import { UpstreamDialer } from './upstreams/upstream-dialer.ts';
import { UpstreamGuard } from './upstreams/upstream-guard.ts';

/** What there is to say of an agent in one line. */
export interface AgentStatus {
  session: SessionStatus;
  tunnels: Readonly<Record<TunnelState, number>>;
}

/** A running agent; its API answers. */
export interface Agent {
  /**
   * Resolves when the embedded gateway, if there is one, has started and the session is being kept. Rejects with an
   * {@link OperatorError} when that cannot be; by then the agent has stopped.
   */
  readonly started: Promise<void>;
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

/** Milliseconds that requests under way get to finish when the agent stops. */
const API_GRACE_MS = 1500;
const UPSTREAM_CONNECT_MS = 10_000;
/** Why tunnels may not lead there. */
const OWN_API = "the agent's own API, which strangers would reach without a token; set AGENT_DOMAIN to reach it";

/**
 * Starts the agent: first its API, then everything that may take its time.
 *
 * @param clock what reconnecting and retrying go by
 * @returns once the API is up
 * @throws {OperatorError} when something is in the way that the operator has to mend
 */
export async function startAgent(settings: Settings, log: Log, clock: Clock = systemClock): Promise<Agent> {
  const parts = new Teardown(log);
  const undo = async (error: unknown): Promise<never> => {
    // What stood in the way of the start is what the operator has to know; the rest is in the log.
    await parts.stop().catch(() => {});
    throw error;
  };
  const running = await startParts(settings, log, clock, parts).catch(undo);
  return { ...running, started: running.started.catch(undo), stop: () => parts.stop() };
}

/** What the parts of an agent need while they start. */
interface Start {
  settings: Settings;
  guard: UpstreamGuard;
  /** Where the agent and its gateway are reached, by what it is; more of them as they come up. */
  addresses: Record<string, string>;
  log: Log;
  clock: Clock;
  parts: Teardown;
}

async function startParts(settings: Settings, log: Log, clock: Clock, parts: Teardown): Promise<Omit<Agent, 'stop'>> {
  const began = performance.now();
  const { api, dataDir } = settings;
  const defaultPolicies = await loadDefaultPolicies(settings.defaultPolicies);
  const socketFolder = await openFolders(dataDir, log, parts);
  let apiToken = await openApiToken(settings).catch((error: unknown) => lockOut(error, log));

  const guard = new UpstreamGuard(settings.allowUpstreams);
  const addresses: Record<string, string> = {};
  const start: Start = { settings, guard, addresses, log, clock, parts };
  const { connector, setGatewayLogLevel } = connectorOf(start);

  const own =
    api.domain === null
      ? null
      : new OwnEndpoint({ connector, domain: api.domain, socket: join(socketFolder, 'api.sock'), clock, log });
  const tunnels = new TunnelManager({
    connector,
    store: new TunnelStore(new DurableFile({ path: tunnelsFile(dataDir), codec: tunnelsCodec, log })),
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

  const session = () => connector.status;
  let metrics: Promise<Metrics> | null = null;
  const app: AppOptions = {
    tunnels,
    session,
    metrics: () => {
      metrics ??= loadMetrics({ tunnelCounts: () => tunnels.counts(), session });
      return metrics;
    },
    version: VERSION,
    uptime: () => (performance.now() - began) / 1000,
    addresses: () => ({ ...addresses, agent: own?.url ?? null }),
    log,
  };
  await serveApi(app, own, () => apiToken.token, start);
  announceRemote(settings, apiToken, log);

  return {
    started: Promise.all([connector.start(), app.metrics()]).then(() => {}),
    status: () => ({ session: session(), tunnels: tunnels.counts() }),
    silentMs: () => connector.silentMs,
    reload: async (next) => {
      const policies = await loadDefaultPolicies(next.defaultPolicies);
      const token = await openApiToken({ ...next, dataDir });
      await tunnels.policies.useDefaults(policies);
      apiToken = token;
      log.level = next.log.level;
      await setGatewayLogLevel(next.log.level);
    },
  };
}

/** @returns the folder of the agent's sockets */
async function openFolders(dataDir: string, log: Log, parts: Teardown): Promise<string> {
  const folder = await openDataFolder(dataDir);
  parts.add(() => folder.release());
  if (folder.unwritable !== null) {
    log.error(
      { folder: dataDir, reason: folder.unwritable },
      'THE DATA FOLDER IS READ-ONLY OR FULL: tunnels stay as they are on the disk, and none can be created or deleted',
    );
  }
  const socketFolder = await openRuntimeFolder(dataDir);
  parts.add(() => rm(socketFolder, { recursive: true, force: true }));
  return socketFolder;
}

/** What keeps the session. The way to the gateway, and the gateway if it is embedded, are opened when it starts. */
function connectorOf({ settings, guard, addresses, log, clock, parts }: Start) {
  const { gateway, dataDir, verifyUpstreamTls } = settings;
  let uplink: Promise<Uplink> | null = null;
  // Why it could not be opened, `started` tells.
  parts.add(async () => (await uplink?.catch(() => null))?.stop());
  const openLink = async () => {
    uplink = openUplink(gateway, dataDir, log);
    const { addresses: gatewayAddresses, whatIsPort, ...target } = await uplink;
    Object.assign(addresses, gatewayAddresses);
    guard.protectOwnPorts(whatIsPort);
    // The SDK's native code is loaded here, when nobody waits for the API any more.
    const { openGatewayLink } = await import('./connectors/sdk/gateway-link.ts');
    return openGatewayLink({ ...target, verifyUpstreamTls, version: VERSION, log, clock });
  };
  const connector = new NgrokConnector({ gateway: gatewayName(gateway), openLink, clock, log });
  parts.add(() => connector.stop());
  return { connector, setGatewayLogLevel: async (level: LogLevel) => (await uplink)?.setLogLevel(level) };
}

/** The API on this device, and behind the agent's own endpoint if there is one. */
async function serveApi(app: AppOptions, own: OwnEndpoint | null, token: () => string, start: Start): Promise<void> {
  const { settings, guard, addresses, log, parts } = start;
  const { api } = settings;
  const servers: RunningServer[] = [];
  // Together, so that requests on one side do not use up the time of those on the other.
  parts.add(() => Promise.all(servers.map((server) => server.close(API_GRACE_MS))));
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
  log.info({ url: addresses.api }, 'the local API is up');
}

/** No part of the start: nobody asks for figures that soon. */
async function loadMetrics(source: MetricsSource): Promise<Metrics> {
  const { Metrics } = await import('./api/metrics.ts');
  return new Metrics(source);
}

/** Whoever holds the token has to wait until it is mended; that is no reason to keep the tunnels down. */
function lockOut(error: unknown, log: Log): ApiToken {
  if (!(error instanceof OperatorError)) throw error;
  log.error({ reason: error.message }, 'NO REMOTE CALL IS LET IN: the API token cannot be had; mend that and reload');
  return tokenOfNobody();
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
