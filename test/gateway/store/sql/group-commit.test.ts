import Libsql from 'libsql';
import { beforeEach, describe, expect, it } from 'vitest';
import { Database } from '../../../../src/gateway/store/sql/database.ts';
import { DatabaseBusy, DatabaseUnwritable } from '../../../../src/gateway/store/sql/database-problems.ts';
import { INSERT, names, scratchDatabase } from './scratch-database.ts';

let file: string;
let database: Database;
beforeEach(() => {
  ({ file, database } = scratchDatabase());
});

describe('a transaction', () => {
  it('rolls back alone when it fails in a shared commit', async () => {
    const outcomes = await Promise.allSettled([
      database.write(() => database.run(INSERT, ['a'])),
      database.write(() => {
        database.run(INSERT, ['half']);
        throw new Error('changed my mind');
      }),
      database.write(() => database.run(INSERT, ['b'])),
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect(names(database)).toEqual(['a', 'b']);
  });

  it('sees the changes of earlier transactions in the same commit', async () => {
    const insert = () => database.write(() => database.run(INSERT, ['same']));
    const outcomes = await Promise.allSettled([insert(), insert()]);
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
  });

  it('is required for changes', () => {
    expect(() => database.run(INSERT, ['a'])).toThrow(/outside a transaction/);
  });

  it('that is pending completes before the database closes', async () => {
    const written = database.write(() => database.run(INSERT, ['last']));
    database.close();
    await written;
    await expect(database.write(() => 1)).rejects.toThrow(/closed/);
    const again = Database.open(file);
    expect(names(again)).toEqual(['last']);
    again.close();
  });

  it('on a full disk fails completely; the next one succeeds once there is space', async () => {
    await database.write(() => database.run(INSERT, ['before']));
    const pages = database.get<{ page_count: number }>('PRAGMA page_count')?.page_count;
    database.all(`PRAGMA max_page_count = ${pages}`);
    const big = "INSERT INTO bot_users (id, created_at, name, active) VALUES (?, '', ?, 1)";
    const write = (id: string) => database.write(() => database.run(big, [id, 'x'.repeat(50_000)]));
    const outcomes = await Promise.allSettled([write('a'), write('b')]);
    const full = { status: 'rejected', reason: expect.any(DatabaseUnwritable) };
    expect(outcomes).toMatchObject([full, full]);
    expect(names(database)).toEqual(['before']);
    database.all('PRAGMA max_page_count = 1000000');
    await write('after');
    expect(names(database)).toEqual(['after', 'before']);
    expect(database.problems()).toEqual([]);
  });

  it('completes even when more are pending than fit one commit', async () => {
    await Promise.all(Array.from({ length: 1000 }, (_, i) => database.write(() => database.run(INSERT, [`n${i}`]))));
    expect(names(database)).toHaveLength(1000);
  });
});

describe('a lock of another process', () => {
  it('does not block reads while writes wait', async () => {
    const other = new Libsql(file);
    other.exec('BEGIN IMMEDIATE');
    const written = Promise.all(['a', 'b'].map((id) => database.write(() => database.run(INSERT, [id]))));
    let turns = 0;
    for (const end = performance.now() + 300; performance.now() < end; turns++) {
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    // Waiting in the engine would have taken the whole time in one turn.
    expect(turns).toBeGreaterThan(3);
    expect(names(database)).toEqual([]);
    other.exec('ROLLBACK');
    other.close();
    await written;
    expect(names(database)).toEqual(['a', 'b']);
  });

  it('fails a write after the deadline', async () => {
    const other = new Libsql(file);
    other.exec('BEGIN IMMEDIATE');
    await expect(database.write(() => database.run(INSERT, ['a']))).rejects.toThrow(DatabaseBusy);
    other.exec('ROLLBACK');
    other.close();
    await database.write(() => database.run(INSERT, ['b']));
    expect(names(database)).toEqual(['b']);
  });
});
