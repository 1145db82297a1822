import { join } from 'node:path';
import { apiTokenIfAny } from '../agent/api-token.ts';
import { CLOUD_AUTHORITY } from '../agent/connector/cloud-authority.ts';
import { CLOUD_ADDRESS, parseGatewayAddress } from '../agent/connector/gateway-address.ts';
import { openGatewayLink } from '../agent/connector/gateway-link.ts';
import { readTunnelFile, tunnelsIn } from '../agent/tunnels/tunnel-file.ts';
import { systemClock } from '../lib/clock.ts';
import { messageOf } from '../lib/errors.ts';
import type { Log } from '../lib/log.ts';
import type { Settings } from '../settings.ts';
import { VERSION } from '../version.ts';
import { clockCheck } from './clock.ts';
import { dataFolderCheck } from './data-folder.ts';
import { defaultPoliciesCheck } from './default-policies.ts';
import { type Check, type Finding, failed, ok, skipped } from './finding.ts';
import { gatewayCheck, type Reach } from './gateway-reach.ts';
import { domainNamesCheck, gatewayNameCheck, type Resolve, systemResolve } from './names.ts';
import { nodeVersionCheck } from './node-version.ts';
import { portsCheck } from './ports.ts';
import { presentedAt } from './presented-certificate.ts';
import { runChecks } from './run-checks.ts';
import { findRunningAgent, liveTunnels, runningAgentCheck } from './running-agent.ts';
import { type Name, sessionChecks } from './session.ts';
import { tunnelFileCheck } from './tunnels-on-disk.ts';
import { upstreamsCheck } from './upstreams.ts';

export interface Surroundings {
  log: Log;
  /** Milliseconds since 1970. */
  now?: () => number;
  resolve?: Resolve;
  nodeVersion?: string;
  /** Origin of a service that is known to tell the right time. */
  dateFrom?: string | null;
}

/** The management API of ngrok's cloud. */
const CLOUD_API = 'https://api.ngrok.com';

/**
 * Finds out what keeps an agent from working with these settings. Nothing is changed, and an agent that runs is left
 * alone.
 *
 * @param settings or why there are none
 */
export async function diagnose(settings: Settings | Error, surroundings: Surroundings): Promise<Finding[]> {
  const node = nodeVersionCheck(surroundings.nodeVersion);
  if (settings instanceof Error) return runChecks([node, ...withoutSettings(settings)], []);
  const secrets = [secretOf(settings), apiTokenIfAny(settings) ?? ''];
  return runChecks([node, ...checksFor(settings, surroundings)], secrets);
}

function checksFor(settings: Settings, surroundings: Surroundings): Check[] {
  const { dataDir, gateway, api } = settings;
  const { log, now = Date.now, resolve = systemResolve } = surroundings;
  const file = readTunnelFile(join(dataDir, 'tunnels.json'));
  const tunnels = file.then(tunnelsIn);
  const agent = findRunningAgent(settings);
  const isEmbedded = gateway.kind === 'embedded';
  const address = isEmbedded ? null : parseGatewayAddress(gateway.serverAddr ?? CLOUD_ADDRESS);
  const isCloud = !isEmbedded && gateway.serverAddr === null;
  const reach = isEmbedded ? null : reachOf(gateway.serverAddr ?? CLOUD_ADDRESS, gateway.caCert);
  const own: Name[] = api.domain === null ? [] : [{ domain: api.domain, protocol: 'http' }];
  const names = tunnels.then((list) => [...own, ...list]);
  return [
    settingsCheck(settings),
    defaultPoliciesCheck(settings.defaultPolicies),
    dataFolderCheck(dataDir),
    tunnelFileCheck(file),
    runningAgentCheck(agent, dataDir),
    portsCheck(settings, agent),
    clockCheck({ now, reach, dateFrom: surroundings.dateFrom ?? (isCloud ? CLOUD_API : null) }),
    gatewayNameCheck(address, resolve),
    gatewayCheck(address, reach, isCloud),
    ...sessionChecks({
      agent,
      reach,
      connect: () => connect(settings, log),
      names,
      live: () => liveTunnels(settings),
    }),
    domainNamesCheck(
      names.then((list) => list.map(({ domain }) => domain)),
      isEmbedded,
      resolve,
    ),
    upstreamsCheck(tunnels, settings),
  ];
}

async function reachOf(serverAddr: string, caCert: Buffer | null): Promise<Reach> {
  try {
    return { presented: await presentedAt(parseGatewayAddress(serverAddr), caCert ?? CLOUD_AUTHORITY) };
  } catch (error) {
    return { error };
  }
}

function connect({ gateway, verifyUpstreamTls }: Settings, log: Log) {
  if (gateway.kind === 'embedded') throw new Error('there is no gateway outside');
  const { authtoken, serverAddr, caCert } = gateway;
  const link = openGatewayLink({
    authtoken,
    ...(serverAddr !== null && { serverAddr }),
    ...(caCert !== null && { caCert }),
    verifyUpstreamTls,
    version: VERSION,
    log,
    clock: systemClock,
  });
  return link.connect();
}

function settingsCheck({ gateway }: Settings): Check {
  const where = gateway.kind === 'embedded' ? 'the embedded gateway' : (gateway.serverAddr ?? "ngrok's cloud");
  return { name: 'settings', title: 'Settings', run: async () => ok(`usable; gateway: ${where}`) };
}

function withoutSettings(error: Error): Check[] {
  const [first = '', ...problems] = messageOf(error).split('\n');
  const advice = 'correct it in the environment or in .env; README lists all settings';
  const results = (problems.length > 0 ? problems : [first]).map((problem) => failed(problem.trim(), advice));
  return [
    { name: 'settings', title: 'Settings', run: async () => results },
    { name: 'everything-else', title: 'Everything else', run: async () => skipped('needs usable settings') },
  ];
}

function secretOf({ gateway }: Settings): string {
  return gateway.kind === 'remote' ? gateway.authtoken() : '';
}
