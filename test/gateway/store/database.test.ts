import { mkdtempSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Libsql from 'libsql';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Database } from '../../../src/gateway/store/database.ts';
import { DatabaseBusy } from '../../../src/gateway/store/database-problems.ts';
import { OperatorError } from '../../../src/lib/errors.ts';

let folder: string;
let file: string;
let database: Database;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'database-'));
  file = join(folder, 'gateway.db');
  database = Database.open(file);
});
afterEach(() => {
  database.close();
  rmSync(folder, { recursive: true });
});

const INSERT = "INSERT INTO bot_users (id, created_at, name, active) VALUES (?, '', '', 1)";
function names(from = database): string[] {
  return from.all<{ id: string }>('SELECT id FROM bot_users ORDER BY id').map(({ id }) => id);
}

describe('a transaction', () => {
  it('leaves nothing behind when it fails, and does not harm those that share its commit', async () => {
    const outcomes = await Promise.allSettled([
      database.write(() => database.run(INSERT, ['a'])),
      database.write(() => {
        database.run(INSERT, ['half']);
        throw new Error('changed my mind');
      }),
      database.write(() => database.run(INSERT, ['b'])),
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect(names()).toEqual(['a', 'b']);
  });

  it('sees what the ones before it in the same commit did', async () => {
    const insert = () => database.write(() => database.run(INSERT, ['same']));
    const outcomes = await Promise.allSettled([insert(), insert()]);
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
  });

  it('is the only place for changes', () => {
    expect(() => database.run(INSERT, ['a'])).toThrow(/outside a transaction/);
  });

  it('that waits is finished before the database closes', async () => {
    const written = database.write(() => database.run(INSERT, ['last']));
    database.close();
    await written;
    await expect(database.write(() => 1)).rejects.toThrow(/closed/);
    const again = Database.open(file);
    expect(names(again)).toEqual(['last']);
    again.close();
  });

  it('on a full disk fails as a whole, and the next one works when there is room again', async () => {
    await database.write(() => database.run(INSERT, ['before']));
    const pages = database.get<{ page_count: number }>('PRAGMA page_count')?.page_count;
    database.all(`PRAGMA max_page_count = ${pages}`);
    const big = "INSERT INTO bot_users (id, created_at, name, active) VALUES (?, '', ?, 1)";
    const write = (id: string) => database.write(() => database.run(big, [id, 'x'.repeat(50_000)]));
    const outcomes = await Promise.allSettled([write('a'), write('b')]);
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    expect(names()).toEqual(['before']);
    database.all('PRAGMA max_page_count = 1000000');
    await write('after');
    expect(names()).toEqual(['after', 'before']);
    expect(database.problems()).toEqual([]);
  });

  it('more of them than fit one commit are all done', async () => {
    await Promise.all(Array.from({ length: 1000 }, (_, i) => database.write(() => database.run(INSERT, [`n${i}`]))));
    expect(names()).toHaveLength(1000);
  });
});

describe('values', () => {
  it('that would abort the engine are turned into what it takes', () => {
    const [row] = database.all<Record<string, unknown>>('SELECT ? AS a, ? AS b, typeof(?) AS c', [
      true,
      new Date(5),
      new Uint8Array([1]),
    ]);
    expect(row).toEqual({ a: 1, b: 5, c: 'blob' });
  });

  it('of other kinds are refused', () => {
    for (const value of [undefined, {}, [], () => 1, Symbol('x'), 'cut\0off']) {
      expect(() => database.all('SELECT ?', [value as never])).toThrow(TypeError);
    }
  });

  it('must be as many as there are places', () => {
    expect(() => database.all('SELECT ?', [])).toThrow(/0 parameters for 1 places/);
    expect(() => database.all('SELECT ?', ['a', 'b'])).toThrow(/2 parameters/);
  });
});

describe('the file', () => {
  it('can be read by its owner alone', async () => {
    await database.write(() => database.run(INSERT, ['a']));
    for (const name of [file, `${file}-wal`]) expect(statSync(name).mode & 0o077).toBe(0);
  });

  it('guards its references', async () => {
    const sql = "INSERT INTO credentials (id, created_at, owner_id, acl, secret_hash) VALUES ('c', '', 'x', '[]', ?)";
    await expect(database.write(() => database.run(sql, [Buffer.of(1)]))).rejects.toThrow(/FOREIGN KEY/);
  });

  it('of a newer version is left alone', () => {
    database.close();
    const engine = Database.open(file);
    engine.all('PRAGMA user_version = 999');
    engine.close();
    expect(() => Database.open(file)).toThrow(OperatorError);
    expect(() => Database.open(file)).toThrow(/newer version/);
  });

  it('that is no database is named, with what to do', () => {
    const other = join(folder, 'other.db');
    writeFileSync(other, 'something else entirely'.repeat(100));
    expect(() => Database.open(other)).toThrow(/other\.db is damaged .* backup/);
    expect(readFileSync(other, 'utf8')).toContain('something else');
  });

  it('that is damaged is named, with what to do', async () => {
    await Promise.all(Array.from({ length: 500 }, (_, i) => database.write(() => database.run(INSERT, [`n${i}`]))));
    const torn = join(folder, 'torn.db');
    database.backup(torn);
    truncateSync(torn, statSync(torn).size - 2 * 4096);
    expect(() => Database.open(torn)).toThrow(/torn\.db is damaged .* backup/);
  });

  it('in a folder that is not there is an error for the operator', () => {
    expect(() => Database.open(join(folder, 'nowhere', 'x.db'))).toThrow(OperatorError);
  });

  it('may be used by two processes', async () => {
    const second = Database.open(file);
    await second.write(() => second.run(INSERT, ['other']));
    await database.write(() => database.run(INSERT, ['own']));
    expect(names()).toEqual(['other', 'own']);
    second.close();
  });

  it('is not held by a row that was read: another process writes on, and empties the log', async () => {
    await database.write(() => database.run(INSERT, ['a']));
    const nameOf = () => database.values('SELECT name FROM bot_users WHERE id >= ?', ['a'])?.[0];
    expect(nameOf()).toBe('');
    const other = new Libsql(file);
    other.exec("UPDATE bot_users SET name = 'new'");
    expect(other.prepare('PRAGMA wal_checkpoint(TRUNCATE)').all()).toEqual([{ busy: 0, log: 0, checkpointed: 0 }]);
    other.close();
    expect(nameOf()).toBe('new');
  });

  it('is waited for while another process writes, without holding up the rest', async () => {
    const other = new Libsql(file);
    other.exec('BEGIN IMMEDIATE');
    const written = Promise.all(['a', 'b'].map((id) => database.write(() => database.run(INSERT, [id]))));
    let turns = 0;
    for (const end = performance.now() + 300; performance.now() < end; turns++) {
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    // Waiting in the engine would have taken the whole time in one turn.
    expect(turns).toBeGreaterThan(3);
    expect(names()).toEqual([]);
    other.exec('ROLLBACK');
    other.close();
    await written;
    expect(names()).toEqual(['a', 'b']);
  });

  it('is not waited for without end', async () => {
    const other = new Libsql(file);
    other.exec('BEGIN IMMEDIATE');
    await expect(database.write(() => database.run(INSERT, ['a']))).rejects.toThrow(DatabaseBusy);
    other.exec('ROLLBACK');
    other.close();
    await database.write(() => database.run(INSERT, ['b']));
    expect(names()).toEqual(['b']);
  });
});

describe('a backup', () => {
  it('is a whole database, made while writes go on', async () => {
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
    expect(() => database.backup(there)).toThrow(/exists already/);
    expect(readFileSync(there, 'utf8')).toBe('precious');
  });
});
