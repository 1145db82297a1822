import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { StoreLocation } from '../gateway/store/open-gateway-store.ts';
import type { Store } from '../gateway/store/store.ts';
import { OperatorError } from '../lib/errors.ts';
import { dataIn } from '../lib/files/own-data.ts';
import { ownCommand, rootCommand } from '../lib/process/own-command.ts';
import { thisHost, thisProgram, withSudo } from '../service/host.ts';
import {
  AGENT_SERVICE,
  GATEWAY_SERVICE,
  installedUnit,
  type Service,
  serviceEnvironment,
  stateFolderOf,
} from '../service/service.ts';
import { type ServiceState, serviceState } from '../service/service-state.ts';
import { loadSettings, type Settings } from '../settings/agent-settings.ts';
import { type GatewayServerSettings, loadGatewayServerSettings } from '../settings/gateway-settings.ts';
import { isSetHere } from '../settings/setting-sources.ts';

/** Where a command runs. */
export interface CommandCaller {
  env: NodeJS.ProcessEnv;
  folder: string;
  isRoot: boolean;
  /** Prefix of the machine's paths; empty except in tests. */
  root: string;
}

/** Where the settings of a program are. */
export interface Place extends Pick<CommandCaller, 'env' | 'folder'> {
  /** Whether the program is the installed service. Only root gets its settings; others get those of the folder. */
  isService: boolean;
}

/** `data`: the command works on files; `api`: it only calls a program. */
type Needs = 'api' | 'data';

/** Settings of the agent that a command is about; see {@link placeOf}. */
export function agentSettings(needs: Needs): Settings {
  const { env, folder } = agentPlace(needs);
  return loadSettings(env, folder);
}

/** Where the settings of the agent are that a command is about; see {@link placeOf}. */
export function agentPlace(needs: Needs, caller: CommandCaller = thisCaller()): Place {
  return placeOf(AGENT_SERVICE, needs, caller);
}

/** Settings of the gateway that a command is about; see {@link placeOf}. */
export function gatewaySettings(needs: Needs): GatewayServerSettings {
  const { env, folder } = gatewayPlace(needs);
  return loadGatewayServerSettings(env, folder);
}

/** Where the settings of the gateway are that a command is about; see {@link placeOf}. */
export function gatewayPlace(needs: Needs, caller: CommandCaller = thisCaller()): Place {
  return placeOf(GATEWAY_SERVICE, needs, caller);
}

/**
 * Finds the settings of the program that a command is about: those of the current folder if they name a program or there
 * is data of one, else those of the installed service.
 *
 * @throws {OperatorError} when only root can use the service's data
 */
function placeOf(service: Service, needs: Needs, caller: CommandCaller): Place {
  const { env, folder, isRoot, root } = caller;
  if (!isServiceMeant(service, caller)) return { env, folder, isService: false };
  if (isRoot) return servicePlace(service, root);
  if (needs === 'api') return { env, folder, isService: true };
  throw new OperatorError(
    `no data in ${join(folder, 'data')}, and only root can use that of the service ${service.name}: run ` +
      `${withSudo()}; for another ${kindOf(service)}, run this in its folder or set DATA_DIR`,
  );
}

/** Where the settings of a service are; requires root, as {@link serviceEnvironment} does. */
export function servicePlace(service: Service, root = thisHost().root): Place {
  return { env: serviceEnvironment(service, { root }), folder: root + stateFolderOf(service), isService: true };
}

const kindOf = (service: Service): string => (service === GATEWAY_SERVICE ? 'gateway' : 'agent');

/** Whether the service is installed, and the folder has neither data of another such program nor settings that name one. */
export function isServiceMeant(service: Service, { env, folder, root }: CommandCaller = thisCaller()): boolean {
  if (installedUnit(service, root) === null) return false;
  const isHere = isSetHere(['DATA_DIR', 'SETTINGS_FILE', 'AGENT_HOST', 'AGENT_PORT'], env, folder);
  return !isHere && !hasData(service, folder);
}

/**
 * Call this before a program starts in the foreground. Beside its service, a person would otherwise get a second one without
 * tunnels, in the folder where they happen to be.
 *
 * @throws {OperatorError} when the service is meant; says how to start that one, or another one here
 */
export function requireNoService(service: Service, caller: CommandCaller = thisCaller()): void {
  if (!isServiceMeant(service, caller)) return;
  const { name, command } = service;
  throw new OperatorError(
    `the ${kindOf(service)} of this machine is the service ${name}: start it with sudo systemctl start ${name}, or see ` +
      `${ownCommand(statusCommand(service))}; for another one in this folder: DATA_DIR=data ${ownCommand(command)}`,
  );
}

const statusCommand = (service: Service): string =>
  service === GATEWAY_SERVICE ? 'service status --gateway' : 'service status';

/** What to do when the program that a command is about does not answer: how to start it, or what to look at. */
export async function startAdvice(service: Service, caller: CommandCaller = thisCaller()): Promise<string> {
  const { name, command } = service;
  if (!isServiceMeant(service, caller)) return `start it with: ${ownCommand(command)}`;
  const doctor = rootCommand(service === GATEWAY_SERVICE ? 'gateway doctor' : 'doctor');
  const state = await stateIfKnown(service);
  if (state === null)
    return `the ${kindOf(service)} of this machine is the service ${name}, whose state only root can see here: run ${doctor}`;
  if (state === 'running' && !caller.isRoot)
    return `the service ${name} is running, with settings that only root can read: run ${withSudo()}`;
  const next = state === 'stopped' ? `start it with: sudo systemctl start ${name}` : `see: journalctl -u ${name}`;
  return `the service ${name} is ${state}; ${next} (${doctor} diagnoses it)`;
}

/** @returns null where systemd answers only root, as without D-Bus */
async function stateIfKnown(service: Service): Promise<ServiceState['state'] | null> {
  try {
    return (await serviceState(service, thisProgram(), thisHost())).state;
  } catch (error) {
    if (error instanceof OperatorError) return null;
    throw error;
  }
}

/** Whether the program has run in a folder with the default settings. */
function hasData(service: Service, folder: string): boolean {
  const data = join(folder, 'data');
  return service === GATEWAY_SERVICE ? existsSync(join(data, 'gateway/gateway.db')) : dataIn(data) === 'own';
}

function thisCaller(): CommandCaller {
  return { env: process.env, folder: process.cwd(), isRoot: process.geteuid?.() === 0, root: thisHost().root };
}

/** Gives up root for the owner of a folder, so that files in it stay readable for the program that uses it. */
export function becomeOwnerOf(folder: string): void {
  if (process.geteuid?.() !== 0) return;
  const { uid, gid } = statSync(folder);
  if (uid === 0) return;
  process.setgroups?.([gid]);
  process.setgid?.(gid);
  process.setuid?.(uid);
}

/** Like {@link becomeOwnerOf}, for the data of a gateway: its user may not be able to read the program, for example in /root. */
export async function becomeGatewayOwner({ dataDir }: Pick<StoreLocation, 'dataDir'>): Promise<void> {
  const { loadStoreCode } = await import('../gateway/store/command-access.ts');
  await loadStoreCode();
  becomeOwnerOf(dataDir);
}

/** The database's code is loaded only here: most commands never need it. */
export async function withStore<T>(location: StoreLocation, work: (store: Store) => Promise<T> | T): Promise<T> {
  const access = await import('../gateway/store/command-access.ts');
  return access.withStore(location, work);
}
