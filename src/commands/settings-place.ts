import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { StoreLocation } from '../gateway/store/open-gateway-store.ts';
import type { Store } from '../gateway/store/store.ts';
import { OperatorError } from '../lib/errors.ts';
import { createLog } from '../lib/log/log.ts';
import { thisHost, withSudo } from '../service/host.ts';
import {
  AGENT_SERVICE,
  GATEWAY_SERVICE,
  type Service,
  serviceEnvironment,
  stateFolderOf,
  unitFileOf,
} from '../service/service.ts';
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
  /** Whether the program is the installed service. */
  isService: boolean;
}

/** `data`: the command works on files; `api`: it only calls a program. */
type Needs = 'api' | 'data';

/** Settings of the agent that a command is about; see {@link placeOf}. */
export function agentSettings(needs: Needs): Settings {
  const { env, folder } = placeOf(AGENT_SERVICE, needs, thisCaller());
  return loadSettings(env, folder);
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
function placeOf(service: Service, needs: Needs, { env, folder, isRoot, root }: CommandCaller): Place {
  const here = { env, folder, isService: false };
  const isHere = isSetHere(['DATA_DIR', 'SETTINGS_FILE', 'AGENT_HOST', 'AGENT_PORT'], env, folder);
  if (isHere || hasData(service, folder) || !existsSync(root + unitFileOf(service))) return here;
  if (isRoot) {
    return { env: serviceEnvironment(service, { root }), folder: root + stateFolderOf(service), isService: true };
  }
  if (needs === 'api') return here;
  throw new OperatorError(
    `no data in ${join(folder, 'data')}, and only root can use that of the service ${service.name}: run ` +
      `${withSudo()}; for another ${service === GATEWAY_SERVICE ? 'gateway' : 'agent'}, run this in its folder or set DATA_DIR`,
  );
}

/** Whether the program has run in a folder with the default settings. */
function hasData(service: Service, folder: string): boolean {
  const names = service === GATEWAY_SERVICE ? ['gateway/gateway.db'] : ['lock', 'tunnels.json'];
  return names.some((name) => existsSync(join(folder, 'data', name)));
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
  const { sqlEngine } = await import('../gateway/store/sql/sql-engine.ts');
  sqlEngine();
  await import('../gateway/store/shared/join-shared.ts');
  await import('pg');
  becomeOwnerOf(dataDir);
}

/**
 * Opens the store of a gateway that was started before: in the wrong folder, a command must not create another one. The
 * database's code is loaded only here: most commands never need it.
 */
export async function withStore<T>(location: StoreLocation, work: (store: Store) => Promise<T> | T): Promise<T> {
  const { expectGateway, openForChanges } = await import('../gateway/store/open-gateway-store.ts');
  const { BY_COMMAND } = await import('../gateway/store/command-key.ts');
  // A machine that has none yet may be given the shared one.
  if ((location.databaseUrl ?? null) === null) expectGateway(location);
  const { store, close } = await openForChanges(location, { older: 'refuse', log: await createLog('silent', 'json') });
  store.database.actFor(BY_COMMAND);
  try {
    return await work(store);
  } finally {
    await close();
  }
}
