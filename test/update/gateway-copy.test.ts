import { execFileSync } from 'node:child_process';
import { chownSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createGatewayData, readStore } from '../../src/gateway/offline/command-store.ts';
import { Database } from '../../src/gateway/store/sql/database.ts';
import { SCHEMA_VERSION } from '../../src/gateway/store/sql/migrations.ts';
import { sqlEngine } from '../../src/gateway/store/sql/sql-engine.ts';
import { failedUpdate } from '../../src/gateway/store/update-facts.ts';
import { GATEWAY_SERVICE, settingsFileOf } from '../../src/service/service.ts';
import { Archive, GatewayCopy } from '../../src/update/data-copy.ts';
import { recordFailedUpdate, settingsOfGateway } from '../../src/update/gateway-service.ts';
import { diskFiles } from '../../src/update/update-files.ts';
import { NO_ROOT, unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const run = async (command: string, ...args: string[]) => execFileSync(command, args, { encoding: 'utf8' });
/** Of nobody in particular. */
const OWNER = 54_321;

/** A gateway's folder of another user, with a database that has a fact. */
async function gatewayFolder(): Promise<{ folder: string; copy: GatewayCopy; archive: string }> {
  const home = temporaryFolder();
  execFileSync('chmod', ['755', home]);
  const folder = join(home, 'gateway');
  mkdirSync(folder, { mode: 0o700 });
  const database = Database.open(join(folder, 'gateway.db'));
  await database.write(() => database.setFact('which', 'old'));
  database.close();
  execFileSync('chown', ['-R', `${OWNER}:${OWNER}`, folder]);
  const archive = join(home, 'gateway-before.tar');
  return { folder, copy: new GatewayCopy(folder, new Archive(archive, diskFiles), run), archive };
}

/** What a newer version does at its start, and before it crashes. */
function becomeNewer(folder: string): void {
  const engine = new (sqlEngine())(join(folder, 'gateway.db'));
  engine.exec(`PRAGMA journal_mode = WAL; CREATE TABLE newer (a); PRAGMA user_version = ${SCHEMA_VERSION + 1}`);
  engine.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  engine.exec("INSERT OR REPLACE INTO facts (name, value) VALUES ('which', 'new')");
  engine.close();
  writeFileSync(join(folder, 'gateway.db-wal'), 'of the newer one');
}

const which = (folder: string) => {
  const database = Database.open(join(folder, 'gateway.db'));
  try {
    return database.fact('which');
  } finally {
    database.close();
  }
};

describe("the copy of a gateway's database", unless(NO_ROOT), () => {
  it('goes back exactly, as files of the same user, and the newer database stays beside it', async () => {
    const { folder, copy } = await gatewayFolder();
    await copy.keep();
    expect(existsSync(join(folder, 'update-trial'))).toBe(true);
    becomeNewer(folder);
    expect(await copy.obstacle()).toBe(null);
    await copy.restore();
    await copy.restore();
    const log = join(folder, 'gateway.db-wal');
    expect(existsSync(log) && readFileSync(log, 'latin1')).not.toBe('of the newer one');
    const { uid, mode } = statSync(join(folder, 'gateway.db'));
    expect([uid, mode & 0o777]).toEqual([OWNER, 0o600]);
    expect(which(folder)).toBe('old');
    expect(readFileSync(join(folder, 'gateway.db.newer'), 'latin1')).toContain('newer');
    await copy.release();
    expect(existsSync(join(folder, 'update-trial'))).toBe(false);
  });

  it('does not go back once changes were accepted: then a newer schema stays, and an equal one may be used', async () => {
    const { folder, copy } = await gatewayFolder();
    await copy.keep();
    await copy.release();
    expect(await copy.obstacle()).toBe(null);
    becomeNewer(folder);
    expect(await copy.obstacle()).toMatch(/^it has changed the schema of the database, and accepted changes/);
    await copy.restore();
    expect(existsSync(join(folder, 'gateway.db.newer'))).toBe(false);
  });

  it('is not made of a newer schema, which the version before could not read', async () => {
    const { folder, copy, archive } = await gatewayFolder();
    await copy.keep();
    await copy.release();
    becomeNewer(folder);
    await copy.keep();
    expect([existsSync(archive), existsSync(join(folder, 'update-trial'))]).toEqual([false, false]);
    expect(await copy.obstacle()).toMatch(/^it has changed the schema/);
  });

  it('is no obstacle where the gateway has never run', async () => {
    const { folder, copy } = await gatewayFolder();
    rmSync(join(folder, 'gateway.db'));
    await copy.keep();
    expect(await copy.obstacle()).toBe(null);
  });

  it('is made again when the version before ran meanwhile and accepted changes', async () => {
    const { folder, copy, archive } = await gatewayFolder();
    await copy.keep();
    const first = readFileSync(archive);
    await copy.keep();
    expect(readFileSync(archive).equals(first)).toBe(true);
    await copy.release();
    const database = Database.open(join(folder, 'gateway.db'));
    await database.write(() => database.setFact('which', 'later'));
    database.close();
    chownSync(join(folder, 'gateway.db'), OWNER, OWNER);
    await copy.keep();
    becomeNewer(folder);
    await copy.restore();
    expect(which(folder)).toBe('later');
  });
});

it('an update of the gateway that failed is recorded in its database, and a database that cannot be opened is no failure', async () => {
  const host = { root: temporaryFolder(), isBooted: true, run: async () => '' };
  const settings = host.root + settingsFileOf(GATEWAY_SERVICE);
  mkdirSync(dirname(settings), { recursive: true });
  writeFileSync(settings, 'GATEWAY_DOMAIN=gateway.test\n');
  const failed = { from: '1.0.0', to: '2.0.0', reason: 'it crashed', at: '2026-11-30T12:00:00Z' };
  const lines: string[] = [];
  const record = (result: 'confirmed' | 'returned') =>
    recordFailedUpdate(host, { result, ...failed, isGivenUp: true }, (line) => lines.push(line));
  await record('returned');
  expect(lines).toEqual([expect.stringMatching(/^the gateway was not told how its update ended: /)]);
  await createGatewayData(settingsOfGateway(host));
  await record('returned');
  await record('confirmed');
  expect(readStore(settingsOfGateway(host), ({ database }) => failedUpdate(database))).toEqual({
    result: 'returned',
    ...failed,
    isGivenUp: true,
  });
  expect(lines).toHaveLength(1);
});
