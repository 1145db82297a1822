import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expectGateway } from '../../gateway/offline/command-store.ts';
import {
  moveToOwn,
  moveToShared,
  ownGatewayId,
  type ServingGateway,
  SharedDatabase,
} from '../../gateway/offline/shared-database.ts';
import { OperatorError } from '../../lib/errors.ts';
import { openDataFolder } from '../../lib/files/data-folder.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { jsonText, note, print, show, table } from '../output.ts';
import { becomeGatewayOwner, withStore } from '../settings-place.ts';

export interface MigrateOptions {
  /** The URL of the shared database, or `sqlite`; left out: the one of the settings. */
  to?: string;
  /** Whether to go on without the shared database. */
  lost?: boolean;
  json?: boolean;
}

/**
 * Moves a stopped gateway's data into an empty shared database, or back. It can be repeated when it was interrupted.
 *
 * @throws {OperatorError} when the gateway runs, or what it moves to is in use
 */
export async function migrateGateway(
  settings: GatewayServerSettings,
  { to, lost = false, json = false }: MigrateOptions,
): Promise<void> {
  expectGateway(settings);
  await becomeGatewayOwner(settings);
  const folder = await openDataFolder(settings.dataDir);
  try {
    if (folder.unwritable !== null) throw new OperatorError(folder.unwritable);
    if (to === 'sqlite') await moveBack(settings, lost, json);
    else await moveTo(settings, to ?? settings.databaseUrl, json);
  } finally {
    await folder.release();
  }
}

async function moveTo(settings: GatewayServerSettings, url: string | null, json: boolean): Promise<void> {
  const { dataDir, databaseUrl, encryptionKey } = settings;
  if (url === null) throw new OperatorError('set GATEWAY_DATABASE_URL, or name the shared database with --to', 2);
  if (databaseUrl !== null && databaseUrl !== url)
    throw new OperatorError('GATEWAY_DATABASE_URL names another database than --to: remove one of them', 2);
  await moveToShared(settings, url);
  if (json) {
    const key = encryptionKey === null ? { encryption_key_file: join(dataDir, 'gateway', 'encryption.key') } : {};
    return print(jsonText({ database: 'postgres', GATEWAY_DATABASE_URL: url, ...key }));
  }
  if (databaseUrl !== null) return note('Everything is in the shared database. Start the gateway.');
  note('Everything is in the shared database. Add these to the settings of the gateway, then start it:');
  print(`GATEWAY_DATABASE_URL=${url}`);
  if (encryptionKey === null)
    print(`GATEWAY_ENCRYPTION_KEY=<the line in ${join(dataDir, 'gateway', 'encryption.key')}>`);
}

async function moveBack(settings: GatewayServerSettings, lost: boolean, json: boolean): Promise<void> {
  if (settings.databaseUrl === null) throw new OperatorError('set GATEWAY_DATABASE_URL, as for the gateway itself', 2);
  await moveToOwn(settings, lost);
  if (json) return print(jsonText({ database: 'sqlite', data_dir: settings.dataDir }));
  note(
    'Everything is in DATA_DIR. Remove GATEWAY_DATABASE_URL from the settings, keep GATEWAY_ENCRYPTION_KEY, then start the ' +
      `gateway. ${lost ? 'No gateway may use the shared database any more.' : 'No other gateway can use the shared database any more.'}`,
  );
}

/** Prints the gateways that serve the shared database. */
export async function listNodes(settings: GatewayServerSettings, { json }: { json?: boolean }): Promise<void> {
  const [gateways, { turn, givenUp }] = await withShared(settings, async (shared) => [
    await shared.gateways(),
    await shared.updates(),
  ]);
  const nodes = gateways.map(({ id, address, state, build, silentSeconds, behind, alone, sessions, endpoints }) => ({
    ...{ id, address, state, version: build, silent_s: Math.round(silentSeconds), behind },
    // One that serves alone tells nobody.
    ...(!alone && { sessions, endpoints }),
    ...(turn?.node === id && { updating_to: turn.version }),
    ...(givenUp?.node === id && { gave_up: { version: givenUp.version, at: givenUp.at, reason: givenUp.reason } }),
  }));
  if (json) return void print(jsonText(nodes));
  // One in its turn may be away.
  if (turn !== null) note(`${turn.address} updates itself to version ${turn.version}, since ${turn.at} (${turn.node})`);
  if (givenUp !== null)
    note(`${givenUp.address} gave up version ${givenUp.version} at ${givenUp.at}: ${givenUp.reason}`);
  if (nodes.length === 0) return note('No gateway serves the shared database.');
  const rows = nodes.map(({ silent_s: silent, behind, sessions = '-', endpoints = '-', ...node }) => {
    const { id, address, state, version } = node;
    return [id, address, state, version, String(sessions), String(endpoints), `${silent} s ago`, `${behind} changes`];
  });
  print(table(['ID', 'ADDRESS', 'STATE', 'VERSION', 'SESSIONS', 'ENDPOINTS', 'HEARD OF', 'BEHIND'], rows));
}

/** How long to wait until all agents of a gateway are elsewhere, and how often to look. */
const DRAIN_MS = 120_000;
const LOOK_MS = 500;

/**
 * Empties a gateway, so that it can be stopped: its agents go to others, and it passes clients on to them.
 *
 * @param id the one of this folder when left out
 * @throws {OperatorError} exit code 4 when there is no such gateway; when there is no other one, or it takes too long
 */
export async function drainNode(
  settings: GatewayServerSettings,
  id = ownId(settings),
  options: { json?: boolean } = {},
): Promise<void> {
  await withShared(settings, async (shared) => {
    const nodes = await shared.gateways();
    const node = nodes.find((each) => each.id === id);
    if (node === undefined) throw unknownNode();
    if (nodes.length === 1)
      throw new OperatorError('no other gateway serves the shared database: agents could not go to it');
    await shared.drain(id);
    await noteGateway(settings, node, { draining: true });
    for (const end = performance.now() + DRAIN_MS; performance.now() < end; await delay(LOOK_MS)) {
      const left = await shared.sessionsOf(id);
      if (left === 0) {
        const text = `${id} has no sessions left: stop it, upgrade it, start it again`;
        return show({ drained: id }, options, () => text);
      }
    }
    throw new OperatorError(`${id} still has sessions after ${DRAIN_MS / 1000} s: see its log`);
  });
}

function ownId(settings: GatewayServerSettings): string {
  const id = ownGatewayId(settings);
  if (id !== null) return id;
  throw new OperatorError(
    `this gateway shares no database: give the id that "${ownCommand('gateway nodes')}" shows`,
    2,
  );
}

function unknownNode(): OperatorError {
  return new OperatorError(`no gateway has this id: ${ownCommand('gateway nodes')} shows the ids`, 4);
}

/** @throws {OperatorError} exit code 4 when there is no such gateway */
export async function removeNode(settings: GatewayServerSettings, id: string): Promise<void> {
  const node = await withShared(settings, async (shared) => {
    const known = (await shared.gateways()).find((each) => each.id === id);
    const address = await shared.remove(id);
    return address === null ? undefined : (known ?? { id, address, draining: false });
  });
  if (node === undefined) throw unknownNode();
  print(`${id} removed: others can serve what it had`);
  await noteGateway(settings, node, null);
}

/** Writes to the audit log what was done with a gateway. */
function noteGateway(
  settings: GatewayServerSettings,
  { id, address, draining }: Pick<ServingGateway, 'id' | 'address' | 'draining'>,
  changes: { draining: boolean } | null,
): Promise<void> {
  const before = { id, address, draining };
  const change = { table: 'gateways', before, after: changes && { ...before, ...changes } };
  return withStore(settings, ({ database }) => database.write(() => database.noteChange(change)));
}

async function withShared<T>(
  { databaseUrl }: GatewayServerSettings,
  work: (shared: SharedDatabase) => Promise<T>,
): Promise<T> {
  if (databaseUrl === null)
    throw new OperatorError('GATEWAY_DATABASE_URL is not set: this gateway shares no database', 2);
  return SharedDatabase.use(databaseUrl, work);
}
