import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openForChanges, openGatewayDatabase } from '../../../../src/gateway/store/open-gateway-store.ts';
import type { SharedWrites } from '../../../../src/gateway/store/shared/shared-writes.ts';
import type { Store } from '../../../../src/gateway/store/store.ts';
import { NO_POSTGRES, PostgresServer } from '../../../support/postgres-server.ts';
import { unless } from '../../../support/requirements.ts';
import { recordingLog } from '../../../support/silent-log.ts';
import { makeFolder, temporaryFolder } from '../../../support/temporary-folder.ts';

const KEY = Buffer.alloc(32, 7).toString('base64');
const NOWHERE = 'postgres://u@127.0.0.1:1/x';
const PAGE = 4096;

interface Opened {
  store: Store;
  shared: SharedWrites | null;
  close: () => Promise<void>;
}

let server: PostgresServer;
const living: Opened[] = [];
const folders = { alone: makeFolder(), copy: makeFolder() };
beforeAll(async () => {
  living.push(await open(folders.alone, null));
  if (NO_POSTGRES === null) {
    server = await PostgresServer.start();
    living.push(await open(folders.copy, server.url()));
  }
  for (const opened of living) for (let i = 0; i < 4; i += 1) await add(opened, `bot_${i}`);
});
afterAll(async () => {
  for (const { close } of living) await close();
  await server?.end();
  for (const folder of Object.values(folders)) rmSync(folder, { recursive: true });
});

/** As the gateway itself opens it. */
function open(
  dataDir: string,
  databaseUrl: string | null,
  log = recordingLog().log,
  onCopyUnusable: (reason: string) => void = () => {},
): Promise<Opened> {
  return openForChanges({ dataDir, encryptionKey: KEY, databaseUrl }, { older: 'upgrade', onCopyUnusable, log });
}

const add = ({ store }: Opened, id: string) =>
  store.database.write(() =>
    store.botUsers.insert({ id, created_at: store.now(), name: 'x'.repeat(9000), active: true }),
  );

const botsOf = ({ store }: Opened) => store.botUsers.where('id > ?', ['']).map(({ id }) => id);

/** The files of a gateway as after a power cut, and how its database is damaged. */
function damagedFolder(
  kind: keyof typeof folders,
  damage: (file: string) => void,
): { dataDir: string; folder: string } {
  const dataDir = temporaryFolder();
  cpSync(folders[kind], dataDir, { recursive: true });
  const folder = join(dataDir, 'gateway');
  damage(join(folder, 'gateway.db'));
  return { dataDir, folder };
}

/** Checkpoints the log, so that the database has everything. */
function settled(file: string): void {
  openGatewayDatabase({ dataDir: join(file, '..', '..'), encryptionKey: KEY }).close();
  for (const suffix of ['-wal', '-shm']) rmSync(file + suffix, { force: true });
}

function overwritten(file: string, at: number, length: number): void {
  const bytes = readFileSync(file);
  writeFileSync(file, bytes.fill(0xa5, at, at + length));
}

const DAMAGE: Record<string, (file: string) => void> = {
  'cut off in its middle': (file) => {
    settled(file);
    truncateSync(file, Math.floor(statSync(file).size / 2));
  },
  'with another header': (file) => {
    settled(file);
    overwritten(file, 0, 100);
  },
  'with garbage in its middle': (file) => {
    settled(file);
    overwritten(file, PAGE, statSync(file).size - 2 * PAGE);
  },
  'of length zero': (file) => truncateSync(file, 0),
  'missing beside its log': (file) => rmSync(file),
  'with a damaged log': (file) => overwritten(`${file}-wal`, 0, 512),
};

/** Without the empty log that the engine leaves. */
function content(folder: string): Record<string, string> {
  const files = readdirSync(folder).filter((name) => !name.endsWith('-shm'));
  const texts = files.map((name) => [name, readFileSync(join(folder, name), 'latin1')] as const);
  return Object.fromEntries(texts.filter(([name, text]) => text !== '' || !name.endsWith('-wal')));
}
const keptIn = (folder: string) => readdirSync(folder).filter((name) => /^gateway\.db\.damaged-\w+$/.test(name));

describe.each(Object.entries(DAMAGE))('a database %s', (_, damage) => {
  it('stops the start of a gateway alone, which names the command that restores', async () => {
    const { dataDir, folder } = damagedFolder('alone', damage);
    const before = content(folder);
    await expect(open(dataDir, null)).rejects.toThrow(/is damaged \(.*"\S.* gateway restore FILE"/);
    expect(content(folder)).toEqual(before);
  });

  it(
    'is kept and made again when it is a copy of a shared one, for the same gateway',
    unless(NO_POSTGRES),
    async () => {
      const { dataDir, folder } = damagedFolder('copy', damage);
      const { log, lines } = recordingLog();
      const opened = await open(dataDir, server.url(), log);
      try {
        expect(botsOf(opened)).toHaveLength(4);
        expect(opened.shared?.node).toBe(living[1]?.shared?.node);
      } finally {
        await opened.close();
      }
      const [line] = lines.filter(({ msg }) => msg === 'damaged copy of the shared database set aside');
      const kept = readdirSync(folder).filter((name) => name.startsWith('gateway.db.damaged-'));
      expect(line).toMatchObject({ reason: expect.any(String), kept: expect.stringMatching(/\.damaged-\w+$/) });
      expect(kept.some((name) => join(folder, name).startsWith(String(line?.kept)))).toBe(true);
    },
  );
});

const cutOff = DAMAGE['cut off in its middle'] as (file: string) => void;

it('a damaged copy waits for a PostgreSQL that is away, and then has everything', unless(NO_POSTGRES), async () => {
  const { dataDir, folder } = damagedFolder('copy', cutOff);
  for (let start = 0; start < 2; start += 1)
    await expect(open(dataDir, NOWHERE)).rejects.toThrow(/cannot be reached .* lost or damaged copy/);
  expect(keptIn(folder)).toHaveLength(1);
  const opened = await open(dataDir, server.url());
  expect(botsOf(opened)).toHaveLength(4);
  await opened.close();
});

it('of several damaged copies, the last one is kept', unless(NO_POSTGRES), async () => {
  const { dataDir, folder } = damagedFolder('copy', cutOff);
  await (await open(dataDir, server.url())).close();
  const [first] = keptIn(folder);
  cutOff(join(folder, 'gateway.db'));
  await (await open(dataDir, server.url())).close();
  expect(keptIn(folder)).toHaveLength(1);
  expect(keptIn(folder)).not.toContain(first);
});

it('a copy that is found damaged in use is made again by the next start', unless(NO_POSTGRES), async () => {
  const { dataDir, folder } = damagedFolder('copy', settled);
  const reasons: string[] = [];
  const opened = await open(dataDir, server.url(), recordingLog().log, (reason) => reasons.push(reason));
  const file = join(folder, 'gateway.db');
  const sound = readFileSync(file);
  overwritten(file, PAGE, sound.length - PAGE);
  opened.store.database.all('PRAGMA shrink_memory');
  expect(() => botsOf(opened)).toThrow(/malformed/);
  expect(reasons[0]).toMatch(/is damaged .* restart the gateway, which sets it aside and makes it again/);
  // What the check of a start does not find.
  writeFileSync(file, sound);
  await opened.close();
  const again = await open(dataDir, server.url());
  expect(botsOf(again)).toHaveLength(4);
  expect(keptIn(folder)).toHaveLength(1);
  await again.close();
  await (await open(dataDir, server.url())).close();
  expect(readdirSync(folder).filter((name) => name.includes('found'))).toEqual([]);
});

it(
  'a command leaves a damaged copy as it is, and does not advise to restore a backup',
  unless(NO_POSTGRES),
  async () => {
    const { dataDir, folder } = damagedFolder('copy', cutOff);
    const before = content(folder);
    const location = { dataDir, encryptionKey: KEY, databaseUrl: server.url() };
    const { log } = recordingLog();
    await expect(openForChanges(location, { older: 'refuse', log })).rejects.toThrow(
      /copy of the shared .*restart the/,
    );
    expect(() => openGatewayDatabase(location)).toThrow(/copy of the shared database; restart the gateway/);
    expect(content(folder)).toEqual(before);
  },
);

it('a damaged database that was never known as a copy is left as it is', unless(NO_POSTGRES), async () => {
  const { dataDir, folder } = damagedFolder('alone', cutOff);
  const before = content(folder);
  await expect(open(dataDir, server.url())).rejects.toThrow(/may not be a copy of the shared database: if it is one/);
  expect(content(folder)).toEqual(before);
});

it('a damaged copy is not made again from another shared database', unless(NO_POSTGRES), async () => {
  await server.query('CREATE DATABASE another');
  const other = server.url().replace(/postgres$/, 'another');
  const { dataDir } = damagedFolder('copy', cutOff);
  await expect(open(dataDir, other)).rejects.toThrow(/is empty, and was not before/);
  await (await open(temporaryFolder(), other)).close();
  await expect(open(dataDir, other)).rejects.toThrow(/another shared database than before/);
});

it('a directory in place of the database stops the start', async () => {
  const { dataDir } = damagedFolder('alone', (file) => {
    rmSync(file);
    rmSync(`${file}-wal`);
    mkdirSync(file);
  });
  await expect(open(dataDir, null)).rejects.toThrow(/cannot open the database/);
});
