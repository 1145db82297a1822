import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { hasNoDomain } from '../../gateway/endpoints/domain-names.ts';
import { NO_PROXIES } from '../../lib/network/proxy-rules.ts';
import type { ServiceState } from '../../service/service-state.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import type { LineProblem } from '../../settings/parse-settings.ts';
import { clockCheck } from '../clock.ts';
import { dataFolderCheck } from '../data-folder.ts';
import { doubtsOf, settingsProblems } from '../diagnose.ts';
import { type Check, check, type Finding, NotKnown, ok, type Result, runChecks } from '../finding.ts';
import { nodeVersionCheck, serviceCheck } from '../platform.ts';
import { tcpCheck } from '../tcp.ts';
import { conditionResults } from './gateway-conditions.ts';
import { certificateResults, companionResults, databaseResults, eventResults, keyResults } from './gateway-data.ts';
import {
  type AskHost,
  addressResults,
  isRunning,
  outsideResults,
  portResults,
  type Recognition,
} from './gateway-ports.ts';
import { findNames } from './reachable-names.ts';
import { sharedDatabaseResults } from './shared-database-results.ts';

export interface GatewaySurroundings {
  now?: () => number;
  /** Left out: the systemd service is not checked. */
  service?: () => Promise<ServiceState>;
  /** Variables that look like settings but are unrecognised. */
  unknownSettings?: readonly string[];
  /** Lines of the files with settings that do not count as they seem to. */
  lineProblems?: readonly LineProblem[];
  /** Another host that tries the public ports, as ssh names it; null: none. */
  from?: string | null;
  ask?: AskHost;
  /** Factor for all timeouts; 1 by default. */
  patience?: number;
}

/**
 * Diagnoses what keeps a standalone gateway with these settings from serving agents and clients. Changes nothing and
 * leaves a running gateway alone.
 *
 * @param settings an error when they are invalid
 */
export async function diagnoseGateway(
  settings: GatewayServerSettings | Error,
  surroundings: GatewaySurroundings = {},
): Promise<Finding[]> {
  const { service, patience = 1 } = surroundings;
  const misspelt = doubtsOf(surroundings);
  const first = [nodeVersionCheck(), ...(service ? [serviceCheck(service, 'device-agent-gateway')] : [])];
  const rest =
    settings instanceof Error
      ? settingsProblems(settings, misspelt)
      : await checksFor(settings, misspelt, surroundings);
  const secrets = settings instanceof Error ? [] : [settings.encryptionKey ?? '', settings.databaseUrl ?? ''];
  return runChecks([...first, ...rest], secrets, patience);
}

async function checksFor(
  settings: GatewayServerSettings,
  misspelt: readonly Result[],
  surroundings: GatewaySurroundings,
): Promise<Check[]> {
  const { now = Date.now, patience = 1 } = surroundings;
  const { dataDir, acme } = settings;
  return [
    check('settings', 'Settings', async () => [ok(`valid; ${placeOf(settings)}`), ...misspelt]),
    dataFolderCheck(dataDir),
    check('database', 'Database', async () => databaseResults(settings)),
    ...(settings.databaseUrl === null
      ? []
      : [check('shared-database', 'Shared database', () => sharedDatabaseResults(settings))]),
    ...(settings.databaseUrl === null
      ? [check('encryption-key', 'Encryption key', async () => keyResults(settings))]
      : []),
    check('ca', 'CA', () => companionResults(settings, now())),
    clockCheck({
      now,
      reach: null,
      dateFrom: acme === null ? null : new URL(acme.directoryUrl).origin,
      proxies: NO_PROXIES,
      patience,
    }),
    tcpCheck('device-agent-gateway'),
    ...(await networkChecks(settings, surroundings)),
    check('certificates', 'Certificates', async () => certificateResults(settings, now())),
    check('events', 'Events', async () => eventResults(settings)),
  ];
}

function placeOf({ domain, ip }: GatewayServerSettings): string {
  if (hasNoDomain({ baseDomain: domain, ip })) return `address: ${ip}, without a domain`;
  return ip === null ? `domain: ${domain}` : `domain: ${domain}; address: ${ip}`;
}

/** Diagnoses only how agents and clients reach the gateway. */
export async function diagnoseNetwork(
  settings: GatewayServerSettings,
  surroundings: GatewaySurroundings = {},
): Promise<Finding[]> {
  return runChecks(await networkChecks(settings, surroundings), [], surroundings.patience ?? 1);
}

async function networkChecks(
  settings: GatewayServerSettings,
  { from = null, ask, patience = 1 }: GatewaySurroundings,
): Promise<Check[]> {
  const { domain, dataDir, httpsPort, acme, balancers } = settings;
  const caPem = await readFile(join(dataDir, 'gateway', 'ca.pem'), 'utf8').catch(() => null); // the CA's check says why
  const gateway: Recognition = { domain, httpsPort, caPem: [caPem ?? '', acme?.issuers ?? ''].join('\n'), balancers };
  const runs = isRunning(settings, gateway, patience);
  const names = findNames(settings, acme?.resolvers ?? null, patience);
  return [
    check('ports', 'Ports', async () => portResults(settings, await runs)),
    check('running', 'Running gateway', async () => {
      if (!(await runs)) throw new NotKnown('the gateway is not running');
      return conditionResults(settings, patience);
    }),
    check('dns', 'DNS', async () => (await names).results),
    check('addresses', 'Addresses', async () => addressResults((await names).addresses, await runs, gateway, patience)),
    check('outside', 'From outside', () => outsideResults(settings, from, ask)),
  ];
}
