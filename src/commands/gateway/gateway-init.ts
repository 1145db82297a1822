import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { diagnoseNetwork } from '../../doctor/gateway/diagnose-gateway.ts';
import { gatewayPorts } from '../../doctor/gateway/gateway-ports.ts';
import { freePorts } from '../../doctor/ports.ts';
import {
  createApiKey,
  createGatewayData,
  emailTarget,
  notifyByEmail,
  type Store,
} from '../../gateway/offline/command-store.ts';
import { SharedDatabase } from '../../gateway/offline/shared-database.ts';
import { hasErrno, OperatorError } from '../../lib/errors.ts';
import { openDataFolder } from '../../lib/files/data-folder.ts';
import { printableMembers } from '../../lib/terminal-text.ts';
import { requireRoot, thisHost, thisProgram } from '../../service/host.ts';
import { installService } from '../../service/install.ts';
import { GATEWAY_SERVICE, serviceEnvironment, settingsFileOf, stateFolderOf } from '../../service/service.ts';
import { type GatewayServerSettings, loadGatewayServerSettings } from '../../settings/gateway-settings.ts';
import { textsOfFiles } from '../../settings/setting-sources.ts';
import { installUpdateUnits } from '../../update/units.ts';
import { jsonText, print } from '../output.ts';
import { withStore } from '../settings-place.ts';
import { describeGateway, type InitResult, initReportJson } from './gateway-init-report.ts';
import { initialSettings } from './gateway-init-settings.ts';
import { addSettings, type InitialSetting, settingLines, settingsIn } from './settings-text.ts';

export interface InitOptions {
  domain?: string;
  /** The public address of a gateway without a domain. */
  ip?: string;
  service: boolean;
  httpsPort?: number;
  httpPort?: number;
  acme: boolean;
  email?: string;
  /** URL of a shared database. */
  database?: string;
  nodeAddress?: string;
  address?: string[];
  from?: string;
  /** The email address that is notified of problems. */
  notify?: string;
  smtp?: string;
  smtpFrom?: string;
  smtpPasswordFile?: string;
  json?: boolean;
}

/** Where the gateway's settings are, and those that it has already. */
interface Place {
  env: NodeJS.ProcessEnv;
  folder: string;
  file: string;
}

/**
 * Sets up a gateway: settings, service, first API key; then checks DNS and ports, and prints what is next. A second run
 * changes nothing.
 *
 * @throws {OperatorError} before it changes anything, when a port is in use or the gateway has another domain
 */
export async function initGateway(options: InitOptions): Promise<void> {
  const email = await mailOf(options);
  const place = options.service ? servicePlace() : trialPlace();
  const missing = missingSettings({ ...options, encryptionKey: await newEncryptionKey(options, place) }, place);
  const settings = loadGatewayServerSettings({ ...place.env, ...valuesOf(missing) }, place.folder);
  const wasThere = settings.ip !== null && !missing.some(({ name }) => name === 'GATEWAY_IP');
  // One that gets a domain runs already.
  if (missing.length > 0 && !wasThere) await requirePorts(settings);
  const service = options.service ? await installWith(missing, place.file) : null;
  if (service === null && missing.length > 0) await addSettings(missing, place.file, 0o600);
  const apiKey = await firstApiKey(settings, service);
  const notified =
    email && (apiKey === null ? 'not started' : await withStore(settings, (store) => notify(store, email)));
  const findings = await diagnoseNetwork(settings, { from: options.from ?? null });
  const result: InitResult = {
    settings,
    file: place.file,
    isNew: missing.length > 0,
    service,
    apiKey,
    notified,
    findings,
    addresses: options.address ?? null,
  };
  print(
    options.json
      ? jsonText(initReportJson(result))
      : describeGateway({ ...result, findings: printableMembers(findings) }),
  );
  // A check that timed out may have left a connection attempt behind.
  process.exit(0);
}

/** @returns null: no notifications are wanted @throws {OperatorError} exit code 2 when that is not valid, or incomplete */
async function mailOf({ notify: to, smtp, smtpFrom: from, smtpPasswordFile: file }: InitOptions) {
  if (to === undefined) {
    if (smtp !== undefined) throw new OperatorError('--smtp: needs --notify, the address that gets the messages', 2);
    return null;
  }
  if (smtp === undefined)
    throw new OperatorError('--notify: needs --smtp, such as --smtp smtps://user@mail.example.com', 2);
  const password = file === undefined ? undefined : (await readFile(file, 'utf8')).replace(/\r?\n$/, '');
  return emailTarget(to, { url: smtp, from, password });
}

async function notify(store: Store, target: ReturnType<typeof emailTarget>): Promise<string> {
  return (await notifyByEmail(store, target)) ?? 'exists';
}

function trialPlace(): Place {
  const folder = process.cwd();
  return { env: process.env, folder, file: join(folder, '.env') };
}

function servicePlace(): Place {
  try {
    requireRoot();
  } catch (error) {
    if (error instanceof OperatorError) throw withTrialHint(error);
    throw error;
  }
  const host = thisHost();
  return {
    env: serviceEnvironment(GATEWAY_SERVICE, host),
    folder: host.root + stateFolderOf(GATEWAY_SERVICE),
    file: settingsFileOf(GATEWAY_SERVICE),
  };
}

/**
 * @returns the encryption key of the first gateway on a shared database; null: it is known
 * @throws {OperatorError} when other gateways use the database, whose key was not given
 */
async function newEncryptionKey({ database }: InitOptions, { env, folder }: Place): Promise<string | null> {
  const texts = { ...process.env, ...textsOfFiles(env, folder) };
  const url = database ?? texts.GATEWAY_DATABASE_URL ?? '';
  if (url === '' || (texts.GATEWAY_ENCRYPTION_KEY ?? '') !== '') return null;
  const isUnused = await SharedDatabase.use(url, async (shared) => {
    if (await shared.isUnused()) return true;
    await shared.requireInUse();
    return false;
  });
  if (isUnused) return randomBytes(32).toString('base64');
  throw new OperatorError(
    'gateways use this shared database already: set GATEWAY_ENCRYPTION_KEY to their key in the environment',
    2,
  );
}

/** The settings to write; none for a gateway that has its domain. */
function missingSettings(
  options: InitOptions & { encryptionKey: string | null },
  { env, folder, file }: Place,
): InitialSetting[] {
  const texts = textsOfFiles(env, folder);
  const environment = settingsIn(process.env, options.service);
  const known = texts.GATEWAY_DOMAIN?.toLowerCase();
  const domain = options.domain ?? environment.GATEWAY_DOMAIN?.toLowerCase() ?? known ?? null;
  const knownIp = texts.GATEWAY_IP ?? null;
  const ip = options.ip ?? environment.GATEWAY_IP ?? knownIp;
  if (domain === null && ip === null) {
    throw new OperatorError(
      'no domain: add --domain, for example --domain gateway.example.com; or --ip with the public address, without a domain',
      2,
    );
  }
  if (knownIp !== null && knownIp !== ip) {
    throw new OperatorError(
      `the gateway here has the address ${knownIp}, not ${ip}: to change it, edit GATEWAY_IP in ${file} and restart it; ` +
        'devices must then be set up again',
    );
  }
  if (known !== undefined && knownIp === null && ip !== null) {
    throw new OperatorError(
      `the gateway here has the domain ${known}: --ip is for a gateway without one; set GATEWAY_IP in ${file} for names below localhost`,
    );
  }
  if (known !== undefined && known !== domain) {
    throw new OperatorError(
      `the gateway here has the domain ${known}, not ${domain}: to change it, edit GATEWAY_DOMAIN in ${file} and restart it; ` +
        'devices must then be set up again',
    );
  }
  if (known !== undefined || (knownIp !== null && domain === null)) return [];
  const { service: isService, acme, httpsPort = null, httpPort = null, email = null } = options;
  const { database = null, nodeAddress = null, encryptionKey } = options;
  const shared = { database, nodeAddress, encryptionKey };
  const wanted = { domain, ip, isService, acme, httpsPort, httpPort, email, ...shared, environment };
  return initialSettings(wanted, (name) => name in texts).filter(({ name, value }) => texts[name] !== value);
}

const valuesOf = (settings: readonly InitialSetting[]) =>
  Object.fromEntries(settings.map(({ name, value }) => [name, value]));

async function requirePorts(settings: GatewayServerSettings): Promise<void> {
  const taken = (await freePorts(gatewayPorts(settings))).filter(({ status }) => status === 'failed');
  if (taken.length === 0) return;
  const lines = taken.map(({ detail, advice }) => `${detail}${advice === null ? '' : `; ${advice}`}`);
  throw new OperatorError(`nothing was changed: ${lines.join('\n')}`);
}

/** @returns what happened, as lines; the last one says whether the service runs */
async function installWith(missing: readonly InitialSetting[], file: string): Promise<string[]> {
  const lines: string[] = [];
  const header = '# Settings of the device-agent-gateway service; docs/settings.md lists all settings.\n';
  const service = { ...GATEWAY_SERVICE, settings: header + settingLines(missing) };
  try {
    if (missing.length > 0 && existsSync(file)) await addSettings(missing, file, 0o640);
    await installService(service, thisProgram(), thisHost(), (line) => void lines.push(line));
    await installUpdateUnits(thisProgram(), thisHost());
  } catch (error) {
    const isAbsent = error instanceof OperatorError && hasErrno(error.cause, 'ENOENT');
    throw isAbsent ? withTrialHint(error) : error;
  }
  return lines;
}

function withTrialHint(error: OperatorError): OperatorError {
  return new OperatorError(`${error.message}; or add --no-service to try a gateway in this folder`, error.exitCode);
}

/** @returns null when there is no database yet, as the service was not started */
async function firstApiKey(settings: GatewayServerSettings, service: string[] | null): Promise<InitResult['apiKey']> {
  const database = join(settings.dataDir, 'gateway', 'gateway.db');
  if (!existsSync(database)) {
    // The service creates its own, as its user.
    if (service !== null) return null;
    await createData(settings);
  }
  return withStore(settings, async (store) => {
    return store.apiKeys.page(null, 1).length > 0 ? 'exists' : createApiKey(store, 'gateway init');
  });
}

/** Nobody else may use the folder meanwhile. */
async function createData(settings: GatewayServerSettings): Promise<void> {
  const folder = await openDataFolder(settings.dataDir);
  try {
    await createGatewayData(settings);
  } finally {
    await folder.release();
  }
}
