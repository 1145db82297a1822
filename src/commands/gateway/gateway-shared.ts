import { join } from 'node:path';
import { openDataFolder } from '../../agent/folders/data-folder.ts';
import { openSharedCa } from '../../gateway/certificates/local-ca/shared-ca.ts';
import { expectGateway, openForChanges } from '../../gateway/store/open-gateway-store.ts';
import { Postgres } from '../../gateway/store/shared/postgres.ts';
import { OperatorError } from '../../lib/errors.ts';
import { createLog } from '../../lib/log/log.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { jsonText, note, print } from '../output.ts';
import { becomeOwnerOf } from '../settings-place.ts';
import { table } from '../table.ts';

/**
 * Moves a stopped gateway's data into an empty shared database, or back. It can be repeated when it was interrupted.
 *
 * @param options.to the URL of the shared database, or `sqlite`
 * @param options.lost whether to go on without the shared database
 * @throws {OperatorError} when the gateway runs, or what it moves to is in use
 */
export async function migrateGateway(
  settings: GatewayServerSettings,
  { to, lost = false }: { to: string; lost?: boolean },
): Promise<void> {
  expectGateway(settings);
  becomeOwnerOf(settings.dataDir);
  const folder = await openDataFolder(settings.dataDir);
  try {
    if (folder.unwritable !== null) throw new OperatorError(folder.unwritable);
    if (to === 'sqlite') await moveBack(settings, lost);
    else await moveTo(settings, to);
  } finally {
    await folder.release();
  }
}

async function moveTo(settings: GatewayServerSettings, url: string): Promise<void> {
  const { dataDir, databaseUrl, encryptionKey } = settings;
  if (databaseUrl !== null)
    throw new OperatorError('GATEWAY_DATABASE_URL is set: this gateway’s data is shared already', 2);
  const log = await createLog('silent', 'json');
  const { store, close } = await openForChanges(
    { ...settings, databaseUrl: url },
    { older: 'upgrade', moves: true, log },
  );
  try {
    await openSharedCa(join(dataDir, 'gateway'), store, log);
  } finally {
    await close();
  }
  note('Everything is in the shared database. Add these to the settings of the gateway, then start it:');
  print(`GATEWAY_DATABASE_URL=${url}`);
  if (encryptionKey === null)
    print(`GATEWAY_ENCRYPTION_KEY=<the line in ${join(dataDir, 'gateway', 'encryption.key')}>`);
}

async function moveBack(settings: GatewayServerSettings, lost: boolean): Promise<void> {
  if (settings.databaseUrl === null) throw new OperatorError('set GATEWAY_DATABASE_URL, as for the gateway itself', 2);
  const [node] = lost ? [] : await withPostgres(settings, (postgres) => postgres.nodes());
  if (node) throw new OperatorError(`the gateway ${node.address} serves the shared database: stop it first`);
  const { shared, close } = await openForChanges(settings, {
    older: 'upgrade',
    log: await createLog('silent', 'json'),
  });
  try {
    if (!lost) await shared?.refresh();
    shared?.detach();
  } finally {
    await close();
  }
  note(
    'Everything is in DATA_DIR. Remove GATEWAY_DATABASE_URL from the settings, keep GATEWAY_ENCRYPTION_KEY, then start the ' +
      'gateway. The shared database is as it was; no gateway may use it any more.',
  );
}

/** Prints the gateways that serve the shared database. */
export async function listNodes(settings: GatewayServerSettings, { json }: { json?: boolean }): Promise<void> {
  const nodes = await withPostgres(settings, async (postgres) => {
    const head = (await postgres.head())?.version ?? 0;
    return (await postgres.nodes()).map(({ id, address, build, applied, silentSeconds }) => {
      return { id, address, version: build, silent_s: Math.round(silentSeconds), behind: Math.max(0, head - applied) };
    });
  });
  if (json) return void print(jsonText(nodes));
  if (nodes.length === 0) return note('No gateway serves the shared database.');
  const rows = nodes.map(({ silent_s: silent, behind, ...node }) => {
    return [node.id, node.address, node.version, `${silent} s ago`, `${behind} changes`];
  });
  print(table(['ID', 'ADDRESS', 'VERSION', 'HEARD OF', 'BEHIND'], rows));
}

/** @throws {OperatorError} exit code 4 when there is no such gateway */
export async function removeNode(settings: GatewayServerSettings, id: string): Promise<void> {
  const wasThere = await withPostgres(settings, (postgres) => postgres.leave(id));
  if (!wasThere) throw new OperatorError('no gateway has this id: device-agent gateway nodes shows the ids', 4);
  print(`${id} removed: another gateway can serve the shared database now`);
}

async function withPostgres<T>(
  { databaseUrl }: GatewayServerSettings,
  work: (postgres: Postgres) => Promise<T>,
): Promise<T> {
  if (databaseUrl === null)
    throw new OperatorError('GATEWAY_DATABASE_URL is not set: this gateway shares no database', 2);
  const postgres = new Postgres(databaseUrl);
  try {
    await postgres.prepare();
    return await work(postgres);
  } finally {
    await postgres.close();
  }
}
