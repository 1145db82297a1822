import { readSavedTunnels } from '../agent/offline/saved-tunnels.ts';
import { type GatewayLink, gatewayTimeOf, openLink, reachInTime, sessionTime } from '../agent/open-link.ts';
import { messageOf } from '../lib/errors.ts';
import type { Log } from '../lib/log/log.ts';
import { NO_PROXIES, type ProxyServer } from '../lib/network/proxy-rules.ts';
import { systemClock } from '../lib/time/clock.ts';
import { probeTls } from '../lib/tls/tls-probe.ts';
import { isDateCode, type TrustedTime } from '../lib/tls/trusted-time.ts';
import { CLOUD_API } from '../management/transport.ts';
import { VERSION } from '../packaged.ts';
import { AGENT_SERVICE } from '../service/service.ts';
import type { ServiceState } from '../service/service-state.ts';
import type { ConnectorKind, GatewaySettings, Settings } from '../settings/agent-settings.ts';
import { apiTokenIfAny } from '../settings/api-token.ts';
import { type LineProblem, settingMeant } from '../settings/parse-settings.ts';
import { loadDefaultPolicies } from '../traffic-policy/load-default-policies.ts';
import type { Name } from './advice.ts';
import { clockCheck } from './clock.ts';
import { dataFolderCheck } from './data-folder.ts';
import { type Check, check, type Finding, failed, NotKnown, ok, type Result, runChecks, skipped } from './finding.ts';
import { gatewayCheck, type Reach, Silence } from './gateway-reach.ts';
import { domainNamesCheck, gatewayNameCheck, type Resolve, systemResolve } from './names.ts';
import { type FailedUpdate, nodeVersionCheck, serviceCheck, updateCheck } from './platform.ts';
import { portsCheck } from './ports.ts';
import { findRunningAgent, liveTunnels, runningAgentCheck } from './running-agent.ts';
import { sessionChecks } from './session.ts';
import { tcpCheck } from './tcp.ts';
import { tunnelFileCheck, upstreamsCheck } from './tunnels.ts';

export interface Surroundings {
  log: Log;
  now?: () => number;
  resolve?: Resolve;
  nodeVersion?: string;
  /** Left out: the systemd service is not checked. */
  service?: () => Promise<ServiceState>;
  /** How the last update failed; left out: nobody can tell. */
  lastUpdate?: () => Promise<FailedUpdate | null>;
  /** Variables that look like settings but are unrecognised. */
  unknownSettings?: readonly string[];
  /** Lines of the files with settings that do not count as they seem to. */
  lineProblems?: readonly LineProblem[];
  /** Factor for all timeouts; 1 by default. */
  patience?: number;
  /** Origin of a server whose clock is right. */
  dateFrom?: string | null;
}

const REACH_MS = 4_000;

/**
 * Diagnoses what keeps an agent from working with these settings. Changes nothing and leaves a running agent alone.
 *
 * @param settings an error when they are invalid
 */
export async function diagnose(settings: Settings | Error, surroundings: Surroundings): Promise<Finding[]> {
  const { nodeVersion, service, lastUpdate, patience = 1 } = surroundings;
  const first = [
    nodeVersionCheck(nodeVersion),
    ...(service ? [serviceCheck(service, AGENT_SERVICE.name)] : []),
    ...(lastUpdate ? [updateCheck(lastUpdate)] : []),
  ];
  const misspelt = doubtsOf(surroundings);
  if (settings instanceof Error) return runChecks([...first, ...settingsProblems(settings, misspelt)], [], patience);
  const secrets = [...secretsOf(settings), apiTokenIfAny(settings) ?? ''];
  return runChecks([...first, ...(await checksFor(settings, misspelt, surroundings))], secrets, patience);
}

async function checksFor(
  settings: Settings,
  misspelt: readonly Result[],
  surroundings: Surroundings,
): Promise<Check[]> {
  const { dataDir, gateway, api } = settings;
  const { log, now = Date.now, resolve = systemResolve, patience = 1 } = surroundings;
  const isEmbedded = gateway.kind === 'embedded';
  const isCloud = !isEmbedded && gateway.serverAddr === null;
  // Before any promise that may reject: while the connector is loaded, nobody would handle that.
  const clock = gatewayTimeOf(dataDir);
  const time = isEmbedded ? null : sessionTime(gateway, clock);
  const link = isEmbedded ? null : await linkTo(settings.connector, { ...gateway, time }, log);
  const file = readSavedTunnels(dataDir);
  const tunnels = file.then((found) => {
    if (found.main.state === 'unusable') throw new NotKnown('cannot read the saved tunnels');
    return found.tunnels;
  });
  const agent = findRunningAgent(settings, patience);
  const reach = isEmbedded || !link ? null : reachBy(link, time, REACH_MS * patience);
  const own: Name[] = api.domain === null ? [] : [{ domain: api.domain, protocol: 'http', isOwn: true }];
  const names = tunnels.then((list) => [...own, ...list]);
  return [
    settingsCheck(settings, misspelt),
    defaultPoliciesCheck(settings.defaultPolicies),
    dataFolderCheck(dataDir),
    tunnelFileCheck(file),
    runningAgentCheck(agent, dataDir),
    portsCheck(settings, agent),
    clockCheck({
      now,
      reach,
      proved: () => clock.report().aheadMs,
      dateFrom: surroundings.dateFrom ?? (isCloud ? CLOUD_API : null),
      proxies: isEmbedded ? NO_PROXIES : gateway.proxies,
      patience,
    }),
    tcpCheck(AGENT_SERVICE.name),
    gatewayNameCheck(link, resolve),
    gatewayCheck(link, reach, isCloud),
    ...sessionChecks({
      agent,
      reach,
      link,
      names,
      live: () => liveTunnels(settings, patience),
      patience,
    }),
    domainNamesCheck(
      names.then((list) => list.map(({ domain }) => domain)),
      isEmbedded,
      resolve,
    ),
    upstreamsCheck(tunnels, settings, patience),
  ];
}

function linkTo(
  connector: ConnectorKind,
  gateway: Extract<GatewaySettings, { kind: 'remote' }> & { time: TrustedTime | null },
  log: Log,
): Promise<GatewayLink> {
  return openLink(connector, { ...gateway, version: VERSION, log, clock: systemClock });
}

async function reachBy(link: GatewayLink, time: TrustedTime | null, ms: number): Promise<Reach> {
  const { address, dial, ca } = link;
  const signal = AbortSignal.timeout(ms);
  const late = `no answer within ${ms / 1000} s`;
  let isConnected = false;
  try {
    const socket = await dial(address, signal);
    isConnected = true;
    try {
      const presented = await probeTls(socket, address, { ca: Buffer.from(ca), signal });
      if (time === null || !isDateCode(presented.distrust)) return { presented };
      // The SDK's link learns from its own probe that the clock is wrong.
      const trial = link.probe(signal).then(() => reachInTime(link, time, signal));
      return { presented, inTime: await trial.then(() => true as const, messageOf) };
    } finally {
      socket.destroy();
    }
  } catch (error) {
    if (!signal.aborted) return { error };
    return { error: isConnected ? new Silence(`accepts connections, but gives ${late}`) : new Error(late) };
  }
}

/** What is doubtful about the settings, though they are valid. */
export function doubtsOf({ unknownSettings = [], lineProblems = [] }: Partial<Surroundings>): Result[] {
  const lines = lineProblems.map(({ detail, advice, isMistake }) =>
    isMistake ? failed(detail, advice) : skipped(`${detail}; ${advice}`),
  );
  return [...unknownSettings.map(misspeltSetting), ...lines];
}

function misspeltSetting(name: string): Result {
  const meant = settingMeant(name);
  const advice = meant === null ? 'correct or remove it' : `did you mean ${meant}? Correct or remove it`;
  return failed(`unrecognised setting: ${name}`, `${advice}; docs/settings.md lists all settings`);
}

function settingsCheck({ gateway }: Settings, misspelt: readonly Result[]): Check {
  const where = gateway.kind === 'embedded' ? 'the embedded gateway' : (gateway.serverAddr ?? "ngrok's cloud");
  return { name: 'settings', title: 'Settings', run: async () => [ok(`valid; gateway: ${where}`), ...misspelt] };
}

/** Checks the file of the default policies; the agent does not start without a valid one. */
function defaultPoliciesCheck(path: string): Check {
  return check('default-policies', 'Default policies', async () => {
    try {
      await loadDefaultPolicies(path);
      return ok(path);
    } catch (error) {
      return failed(messageOf(error), 'correct the file, or unset DEFAULT_POLICIES to use the packaged policies');
    }
  });
}

/** The checks of a program whose settings are invalid. */
export function settingsProblems(error: Error, misspelt: readonly Result[]): Check[] {
  const [first = '', ...problems] = messageOf(error).split('\n');
  const advice =
    'correct it in the environment, .env or the service’s settings.env; docs/settings.md lists all settings';
  const results = (problems.length > 0 ? problems : [first]).map((problem) => failed(problem.trim(), advice));
  return [
    { name: 'settings', title: 'Settings', run: async () => [...results, ...misspelt] },
    { name: 'everything-else', title: 'Everything else', run: async () => skipped('requires valid settings') },
  ];
}

function secretsOf({ gateway }: Settings): string[] {
  if (gateway.kind === 'embedded') return [];
  const { https, http, all } = gateway.proxies;
  const passwords = [https, http, all].map((proxy: ProxyServer | null) => proxy?.credentials?.password ?? '');
  return [gateway.authtoken(), ...passwords];
}
