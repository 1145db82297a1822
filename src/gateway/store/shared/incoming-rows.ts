import { closeSync, existsSync, openSync, rmSync } from 'node:fs';
import type Libsql from 'libsql';
import { isDamage } from '../sql/database-problems.ts';
import { sqlEngine } from '../sql/sql-engine.ts';
import type { Position, SharedRow } from './replica-tables.ts';

/** What is not a file: for a command, which another start does not continue. */
export const IN_MEMORY = ':memory:';
/** How long a step waits for another thread that uses the file. */
const BUSY_MS = 5_000;
/** Rows that are read at a time. */
const READ = 500;
const NEXT = '(tbl, key) > (?, ?) ORDER BY tbl, key LIMIT ?';
const SUFFIXES = ['', '-wal', '-shm'];

/** Why more than a few changes are fetched. */
export type Reason = 'behind' | 'first' | 'forgotten' | 'older' | 'differs';

/** How far the rows have arrived that a copy lacks. */
export interface RowsProgress {
  /** What the copy has; with another one, the rows are not what it lacks. */
  readonly base: Position;
  readonly reason: Reason;
  /** The parts of tables that are copied, by name; null: everything. Left out of `behind`. */
  readonly parts: readonly string[] | null;
  /** Of the rows that are copied, the last one that has arrived; null: all have. */
  readonly copied: readonly [tbl: string, key: string] | null;
  /** The change after which changes are fetched, and the last row of them that has arrived. */
  readonly from: number;
  readonly changed: readonly [version: number, tbl: string, key: string];
  /** The shared database's last commit when a page was sent. */
  readonly seen: Position;
  readonly rows: number;
}

/** A row as PostgreSQL sends it: a JSON text; null: it was deleted. */
export type RowText = Pick<SharedRow, 'tbl' | 'key'> & { readonly row: string | null };

/**
 * Rows that have arrived for a copy and are not in it yet, in a file beside it: what a slow link has brought is not lost when
 * the process ends.
 */
export class IncomingRows {
  #engine: Libsql.Database | null = null;

  /** @param file is created when there is something to keep; {@link IN_MEMORY}: none */
  constructor(readonly file: string) {}

  /** Null: nothing has arrived. */
  get progress(): RowsProgress | null {
    if (this.#engine === null && (this.file === IN_MEMORY || !existsSync(this.file))) return null;
    try {
      const [row] = this.#opened().prepare('SELECT text FROM progress').all([]) as { text: string }[];
      return row ? (JSON.parse(row.text) as RowsProgress) : null;
    } catch (error) {
      if (!isDamage(error)) throw error;
      this.discard();
      return null;
    }
  }

  /** Keeps the rows of a page, instead of what has arrived before for the same rows, in one commit. */
  keep(rows: readonly RowText[], progress: RowsProgress): void {
    const engine = this.#opened();
    this.#committed(() => {
      const put = engine.prepare('INSERT OR REPLACE INTO rows (tbl, key, row) VALUES (?, ?, ?)');
      for (const { tbl, key, row } of rows) put.run([tbl, key, row]);
      engine.exec('DELETE FROM progress');
      engine.prepare('INSERT INTO progress VALUES (?)').run([JSON.stringify(progress)]);
    });
  }

  /** What has arrived and the copy lacks, in the order of keys; may be gone through several times. */
  get rows(): Iterable<SharedRow> {
    return { [Symbol.iterator]: () => this.#read('NOT same') };
  }

  /** Which rows these are, some at a time, first those that were deleted. */
  *names(): Generator<Pick<SharedRow, 'tbl' | 'key'>[]> {
    for (const condition of ['row IS NULL', 'row IS NOT NULL']) {
      const sql = `SELECT tbl, key FROM rows WHERE ${condition} AND NOT same AND ${NEXT}`;
      for (const found of this.#pages(sql)) yield found.map(([tbl, key]) => ({ tbl, key }));
    }
  }

  /**
   * Compares what has arrived with the rows that a copy has: those that are there already are left out from now on, and those that
   * should not be there count as deleted.
   */
  compare(own: Iterable<SharedRow>, isSame: (own: SharedRow, arrived: NonNullable<SharedRow['row']>) => boolean): void {
    const engine = this.#opened();
    const find = engine.prepare('SELECT row FROM rows WHERE tbl = ? AND key = ?').raw();
    const mark = engine.prepare('UPDATE rows SET same = 1 WHERE tbl = ? AND key = ?');
    const addDeleted = engine.prepare('INSERT INTO rows (tbl, key) VALUES (?, ?)');
    this.#committed(() => {
      engine.exec('UPDATE rows SET same = 0 WHERE same');
      for (const row of own) {
        const [found] = find.all([row.tbl, row.key]) as [string | null][];
        if (!found) addDeleted.run([row.tbl, row.key]);
        else if (found[0] !== null && isSame(row, JSON.parse(found[0]))) mark.run([row.tbl, row.key]);
      }
    });
  }

  *#read(condition: string): Generator<SharedRow> {
    for (const found of this.#pages(`SELECT tbl, key, row FROM rows WHERE ${condition} AND ${NEXT}`))
      for (const [tbl, key, row] of found) yield { tbl, key, row: row === null ? null : JSON.parse(row ?? '') };
  }

  *#pages(sql: string): Generator<[tbl: string, key: string, row?: string | null][]> {
    const next = this.#opened().prepare(sql).raw();
    for (let last: readonly [string, string, ...unknown[]] | undefined = ['', '']; last; ) {
      const found = next.all([last[0], last[1], READ]) as [string, string, string | null][];
      yield found;
      last = found.length < READ ? undefined : found.at(-1);
    }
  }

  #committed(work: () => void): void {
    const engine = this.#opened();
    engine.exec('BEGIN IMMEDIATE');
    try {
      work();
      engine.exec('COMMIT');
    } catch (error) {
      if (engine.inTransaction) engine.exec('ROLLBACK');
      throw error;
    }
  }

  /** Ends the use of the file, which stays. */
  close(): void {
    this.#engine?.close();
    this.#engine = null;
  }

  discard(): void {
    this.close();
    if (this.file === IN_MEMORY) return;
    for (const suffix of SUFFIXES) rmSync(this.file + suffix, { force: true });
  }

  #opened(): Libsql.Database {
    if (this.#engine) return this.#engine;
    if (this.file !== IN_MEMORY) closeSync(openSync(this.file, 'a', 0o600));
    const engine = new (sqlEngine())(this.file, { timeout: BUSY_MS });
    this.#engine = engine;
    engine.exec('PRAGMA journal_mode = WAL');
    // Without what a power cut takes, it is sound, and the pages are fetched again.
    engine.exec('PRAGMA synchronous = NORMAL');
    engine.exec(`CREATE TABLE IF NOT EXISTS progress (text TEXT NOT NULL);
      CREATE TABLE IF NOT EXISTS rows (
        tbl TEXT, key TEXT, row TEXT, same INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (tbl, key)
      ) WITHOUT ROWID`);
    return engine;
  }
}
