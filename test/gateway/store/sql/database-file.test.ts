import {
  copyFileSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Database } from '../../../../src/gateway/store/sql/database.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';

const WRITES = 6;
const INSERT = "INSERT INTO bot_users (id, created_at, name, active) VALUES (?, '', ?, 1)";

/** A database in use, and the end of its log after each write. */
let live: { folder: string; database: Database; ends: number[] };
beforeAll(async () => {
  const folder = mkdtempSync(join(tmpdir(), 'database-'));
  const database = Database.open(join(folder, 'gateway.db'));
  const ends: number[] = [];
  for (let i = 0; i < WRITES; i += 1) {
    await database.write(() => database.run(INSERT, [`n${i}`, 'x'.repeat(9000)]));
    ends.push(statSync(join(folder, 'gateway.db-wal')).size);
  }
  live = { folder, database, ends };
});
afterAll(() => {
  live.database.close();
  rmSync(live.folder, { recursive: true });
});

/** A copy of the files, as after a power cut. */
function copyOf(folder = live.folder): { folder: string; db: string; wal: string } {
  const copy = temporaryFolder();
  for (const name of ['gateway.db', 'gateway.db-wal']) copyFileSync(join(folder, name), join(copy, name));
  return { folder: copy, db: join(copy, 'gateway.db'), wal: join(copy, 'gateway.db-wal') };
}

function content(folder: string): Record<string, string> {
  return Object.fromEntries(readdirSync(folder).map((name) => [name, readFileSync(join(folder, name), 'latin1')]));
}

function rows(file: string): number {
  const database = Database.open(file);
  try {
    expect(database.problems()).toEqual([]);
    return database.all('SELECT id FROM bot_users').length;
  } finally {
    database.close();
  }
}

function expectRefusal(folder: string, message: RegExp): void {
  const before = content(folder);
  expect(() => Database.open(join(folder, 'gateway.db'))).toThrow(message);
  expect(content(folder)).toEqual(before);
}

describe('a database with a write-ahead log', () => {
  it('keeps all changes after a power cut', () => {
    expect(rows(copyOf().db)).toBe(WRITES);
  });

  it('keeps every complete commit of a log torn at any place', () => {
    const last = live.ends.at(-1) ?? 0;
    for (let length = 33; length < last; length += 4001) {
      const { db, wal } = copyOf();
      truncateSync(wal, length);
      expect(rows(db), `${length} bytes`).toBe(live.ends.filter((end) => end <= length).length);
    }
  });

  it('is refused and left unchanged when its log is damaged before a later commit', () => {
    const [, second = 0, third = 0] = live.ends;
    for (let at = second; at < third; at += 1531) {
      const { folder, wal } = copyOf();
      const bytes = readFileSync(wal);
      bytes[at] = (bytes[at] ?? 0) ^ 0x20;
      writeFileSync(wal, bytes);
      expectRefusal(folder, /gateway\.db is damaged \(in its log \S+-wal, what was written .* backup/);
    }
  });

  it('is refused when the start of its log is zeroed', () => {
    const { folder, wal } = copyOf();
    writeFileSync(wal, readFileSync(wal).fill(0, 0, 512));
    expectRefusal(folder, /first bytes/);
  });

  it('is refused, and its log kept, when the database is empty or missing', () => {
    const empty = copyOf();
    truncateSync(empty.db, 0);
    expectRefusal(empty.folder, /is empty/);
    const gone = copyOf();
    rmSync(gone.db);
    expectRefusal(gone.folder, /is missing, and \S+-wal is not/);
  });
});

it('a backup is refused beside the log of another database, and opens without it', () => {
  const { folder, db, wal } = copyOf();
  live.database.backup(join(folder, 'backup.db'));
  renameSync(join(folder, 'backup.db'), db);
  expectRefusal(folder, /is a backup, and \S+-wal is the log of another one/);
  rmSync(wal);
  expect(rows(db)).toBe(WRITES);
});

describe('a closed database', () => {
  it('is one complete file', async () => {
    const { folder, db, wal } = copyOf();
    expect(rows(db)).toBe(WRITES);
    expect(statSync(wal).size).toBe(0);
    for (const name of readdirSync(folder)) if (name !== 'gateway.db') rmSync(join(folder, name));
    expect(rows(db)).toBe(WRITES);
  });

  it('is refused when it is empty', () => {
    const { folder, db } = copyOf();
    rows(db);
    truncateSync(db, 0);
    expectRefusal(folder, /is empty/);
  });
});

it('a new database appears complete or not at all, without leftover files', () => {
  const folder = temporaryFolder();
  const database = Database.open(join(folder, 'gateway.db'));
  expect(readdirSync(folder).toSorted()).toEqual(['gateway.db', 'gateway.db-shm', 'gateway.db-wal']);
  expect(statSync(join(folder, 'gateway.db')).mode & 0o777).toBe(0o600);
  database.close();
});
