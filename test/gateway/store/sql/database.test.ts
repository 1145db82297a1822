import { copyFileSync, readFileSync, renameSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { Database } from '../../../../src/gateway/store/sql/database.ts';
import { DatabaseUnwritable } from '../../../../src/gateway/store/sql/database-problems.ts';
import { keepSmall } from '../../../../src/gateway/store/sql/free-space.ts';
import { OperatorError } from '../../../../src/lib/errors.ts';
import { SteeredClock } from '../../../support/steered-clock.ts';
import { INSERT, names, scratchDatabase } from './scratch-database.ts';

let folder: string;
let file: string;
let database: Database;
beforeEach(() => {
  ({ folder, file, database } = scratchDatabase());
});

/** Adds so many rows, each larger than a page. */
function fill(count: number): () => void {
  const sql = "INSERT INTO bot_users (id, created_at, name, active) VALUES (?, '', ?, 1)";
  return () => {
    for (let at = 0; at < count; at++) database.run(sql, [`n${at}`, 'x'.repeat(4_500)]);
  };
}

describe('the database file', () => {
  it('shrinks after rows are deleted, while in use', async () => {
    const rows = fill(10_000);
    await database.write(() => rows());
    const before = statSync(file).size + statSync(`${file}-wal`).size;
    await database.write(() => database.run('DELETE FROM bot_users'));
    const clock = new SteeredClock();
    const stop = keepSmall(database, clock);
    onTestFinished(stop);
    for (let step = 0; step < 100; step++) await clock.advance(60_000);
    expect(before).toBeGreaterThan(40_000_000);
    expect(statSync(file).size + statSync(`${file}-wal`).size).toBeLessThan(before / 5);
    expect(database.problems()).toEqual([]);
  });

  it('of an older version shrinks at the next start, when most of it is free', async () => {
    database.all('PRAGMA auto_vacuum = 0');
    database.all('VACUUM');
    const rows = fill(10_000);
    await database.write(() => rows());
    await database.write(() => database.run('DELETE FROM bot_users WHERE id <> ?', ['n1']));
    expect(database.giveBackSpace()).toBe(false);
    database.close();
    expect(statSync(file).size).toBeGreaterThan(40_000_000);
    const again = Database.open(file);
    onTestFinished(() => again.close());
    expect(statSync(file).size).toBeLessThan(1_000_000);
    expect([names(again), again.problems()]).toEqual([['n1'], []]);
  });

  it('is readable only by its owner', async () => {
    await database.write(() => database.run(INSERT, ['a']));
    for (const name of [file, `${file}-wal`]) expect(statSync(name).mode & 0o077).toBe(0);
  });

  it('enforces foreign keys', async () => {
    const sql = "INSERT INTO credentials (id, created_at, owner_id, acl, secret_hash) VALUES ('c', '', 'x', '[]', ?)";
    await expect(database.write(() => database.run(sql, [Buffer.of(1)]))).rejects.toThrow(/FOREIGN KEY/);
  });

  it('from a newer version is refused and left unchanged', () => {
    database.close();
    const engine = Database.open(file);
    engine.all('PRAGMA user_version = 999');
    engine.close();
    expect(() => Database.open(file)).toThrow(OperatorError);
    expect(() => Database.open(file)).toThrow(/newer version/);
  });

  it('that is not a database is refused with its name and advice', () => {
    const other = join(folder, 'other.db');
    writeFileSync(other, 'something else entirely'.repeat(100));
    expect(() => Database.open(other)).toThrow(/other\.db is damaged .* backup/);
    expect(readFileSync(other, 'utf8')).toContain('something else');
  });

  it('that is damaged is refused with its name and advice', async () => {
    await Promise.all(Array.from({ length: 500 }, (_, i) => database.write(() => database.run(INSERT, [`n${i}`]))));
    const torn = join(folder, 'torn.db');
    database.backup(torn);
    truncateSync(torn, statSync(torn).size - 2 * 4096);
    expect(() => Database.open(torn)).toThrow(/torn\.db is damaged .* backup/);
  });

  it('that is deleted or replaced in use takes no changes, and loses none', async () => {
    await database.write(() => database.run(INSERT, ['kept']));
    const write = (id: string) => database.write(() => database.run(INSERT, [id]));
    copyFileSync(file, `${file}.other`);
    renameSync(`${file}.other`, file);
    await expect(write('into the old file')).rejects.toThrow(DatabaseUnwritable);
    for (const name of [file, `${file}-wal`, `${file}-shm`]) rmSync(name);
    await expect(write('into nothing')).rejects.toThrow(/was deleted or replaced.*rename .*gateway\.db\.rescued/);
    database.close();
    expect(() => Database.open(file)).toThrow(/gateway\.db is missing.*rename/);
    renameSync(`${file}.rescued`, file);
    const again = Database.open(file);
    expect(names(again)).toEqual(['kept']);
    again.close();
  });

  it('in a missing folder is an operator error', () => {
    expect(() => Database.open(join(folder, 'nowhere', 'x.db'))).toThrow(OperatorError);
  });

  it('can be used by two processes', async () => {
    const second = Database.open(file);
    await second.write(() => second.run(INSERT, ['other']));
    await database.write(() => database.run(INSERT, ['own']));
    expect(names(database)).toEqual(['other', 'own']);
    second.close();
  });
});

describe('a backup', () => {
  it('is a complete database, taken during writes', async () => {
    const backup = join(folder, 'backup.db');
    const writes = Array.from({ length: 300 }, (_, i) => database.write(() => database.run(INSERT, [`n${i}`])));
    await writes[0];
    database.backup(backup);
    await Promise.all(writes);
    const copy = Database.open(backup);
    expect(copy.problems()).toEqual([]);
    expect(names(copy).length).toBeGreaterThan(0);
    copy.close();
    expect(statSync(backup).mode & 0o077).toBe(0);
  });

  it('never overwrites a file', () => {
    const there = join(folder, 'there');
    writeFileSync(there, 'precious');
    expect(() => database.backup(there)).toThrow(/already exists/);
    expect(readFileSync(there, 'utf8')).toBe('precious');
  });
});
