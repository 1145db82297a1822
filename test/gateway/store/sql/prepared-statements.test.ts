import Libsql from 'libsql';
import { beforeEach, describe, expect, it } from 'vitest';
import type { Database } from '../../../../src/gateway/store/sql/database.ts';
import { INSERT, scratchDatabase } from './scratch-database.ts';

let file: string;
let database: Database;
beforeEach(() => {
  ({ file, database } = scratchDatabase());
});

describe('values', () => {
  it('that would abort the engine are converted', () => {
    const [row] = database.all<Record<string, unknown>>('SELECT ? AS a, ? AS b, typeof(?) AS c', [
      true,
      new Date(5),
      new Uint8Array([1]),
    ]);
    expect(row).toEqual({ a: 1, b: 5, c: 'blob' });
  });

  it('of other types are refused', () => {
    for (const value of [undefined, {}, [], () => 1, Symbol('x'), 'cut\0off']) {
      expect(() => database.all('SELECT ?', [value as never])).toThrow(TypeError);
    }
  });

  it('must match the number of placeholders', () => {
    expect(() => database.all('SELECT ?', [])).toThrow(/0 parameters for 1 placeholders/);
    expect(() => database.all('SELECT ?', ['a', 'b'])).toThrow(/2 parameters/);
  });
});

describe('a statement', () => {
  it('that returned a row holds no lock: another process writes and checkpoints', async () => {
    await database.write(() => database.run(INSERT, ['a']));
    const nameOf = () => database.values('SELECT name FROM bot_users WHERE id >= ?', ['a'])?.[0];
    expect(nameOf()).toBe('');
    const other = new Libsql(file);
    other.exec("UPDATE bot_users SET name = 'new'");
    expect(other.prepare('PRAGMA wal_checkpoint(TRUNCATE)').all()).toEqual([{ busy: 0, log: 0, checkpointed: 0 }]);
    other.close();
    expect(nameOf()).toBe('new');
  });
});
