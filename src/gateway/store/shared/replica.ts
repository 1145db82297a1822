import { createHash } from 'node:crypto';
import type Libsql from 'libsql';
import { REPLICA_TABLE, REPLICA_TABLES } from '../sql/database.ts';
import { applyIncoming } from './copy-jobs.ts';
import type { IncomingRows } from './incoming-rows.ts';
import { ReplicaPast } from './replica-past.ts';
import {
  isSameRow,
  keyOf,
  type Position,
  putRows,
  rowAt,
  rowName,
  rowsOf,
  type SharedRow,
  type TableShape,
  type Tables,
  tablesOf,
  writePosition,
} from './replica-tables.ts';

/** Of a copy that has nothing of its shared database yet. */
export const NOTHING_YET = 0;

/** The row that says of which account all others are. */
export const ACCOUNT = { tbl: 'facts', key: '["account"]' };

/** Of which shared database a copy is one, and of which gateway. */
export type Origin = Pick<Position, 'cluster'> & { readonly node: string };

/**
 * The copy of a shared database in this gateway's own one. Rows are written as they were sent, without the effects of foreign
 * keys: what a deletion takes with it was sent, too.
 */
export class Replica {
  readonly tables: Tables;
  /** To be prepared before it is used. */
  readonly past: ReplicaPast;

  /** @param engine set up here to note which rows change */
  constructor(readonly engine: Libsql.Database) {
    this.tables = tablesOf(engine);
    this.past = new ReplicaPast(engine);
    engine.exec('CREATE TEMP TABLE changed_rows (tbl TEXT, key TEXT, PRIMARY KEY (tbl, key)) WITHOUT ROWID');
    // Else REPLACE would delete rows without being noticed.
    engine.exec('PRAGMA recursive_triggers = ON');
    for (const table of this.tables.values()) for (const sql of triggersOf(table)) engine.exec(sql);
    // The shared database has what a power cut takes from this copy.
    engine.exec('PRAGMA synchronous = NORMAL');
  }

  /** Null: it follows no shared database yet. */
  get position(): Position | null {
    const known = this.engine.prepare('SELECT 1 FROM sqlite_master WHERE name = ?').all([REPLICA_TABLE]);
    if (known.length === 0) return null;
    const [row] = this.engine.prepare(`SELECT cluster, version, batch FROM ${REPLICA_TABLE}`).all([]) as Position[];
    return row ? { cluster: row.cluster, version: Number(row.version), batch: row.batch } : null;
  }

  /** Null: it follows no shared database yet. */
  get origin(): Origin | null {
    const cluster = this.position?.cluster;
    return cluster === undefined ? null : { cluster, node: this.node };
  }

  /** Identifies the gateway whose copy this is, however often it starts. */
  get node(): string {
    const [row] = this.engine.prepare(`SELECT node FROM ${REPLICA_TABLE}`).all([]) as { node: string }[];
    return row?.node ?? '';
  }

  /** Whether it has nothing but what every new database has. */
  get isNew(): boolean {
    return this.size < 2 && this.rows().every(isAccount);
  }

  /** The account of which its rows are. */
  get account(): string | null {
    const row = this.#row(ACCOUNT.tbl, ACCOUNT.key);
    return row === null ? null : String(row.value);
  }

  /**
   * Runs changes and undoes them. @returns the rows as they would have become
   * @throws what `work` throws; SQLITE_BUSY while another process writes
   */
  tryOut(work: () => void): SharedRow[] {
    this.engine.exec('BEGIN IMMEDIATE');
    try {
      work();
      const changed = this.engine.prepare('SELECT tbl, key FROM changed_rows').raw().all([]) as [string, string][];
      return changed.map(([tbl, key]) => ({ tbl, key, row: this.#row(tbl, key) }));
    } finally {
      if (this.engine.inTransaction) this.engine.exec('ROLLBACK');
    }
  }

  /** Applies what has become of rows. Tables and columns of a newer version are left out. */
  apply(rows: readonly SharedRow[], position: Position): void {
    // Has no effect inside a transaction.
    this.engine.exec('PRAGMA foreign_keys = OFF');
    try {
      this.engine.exec('BEGIN IMMEDIATE');
      putRows(this.engine, this.tables, rows);
      writePosition(this.engine, position);
      this.engine.exec('DELETE FROM changed_rows');
      this.engine.exec('COMMIT');
    } catch (error) {
      if (this.engine.inTransaction) this.engine.exec('ROLLBACK');
      throw error;
    } finally {
      this.engine.exec('PRAGMA foreign_keys = ON');
    }
  }

  /** Applies what has arrived in pages, in one commit. */
  applyIncoming(incoming: IncomingRows, position: Position): void {
    applyIncoming(this.engine, this.tables, incoming, position);
    this.engine.exec('DELETE FROM changed_rows');
  }

  /** Makes a new database a copy that has nothing yet. */
  begin({ cluster, node }: Origin): void {
    writePosition(this.engine, { cluster, version: NOTHING_YET, batch: '' });
    this.engine.prepare(`UPDATE ${REPLICA_TABLE} SET node = ?`).run([node]);
  }

  /** Makes it a database of its own again, which keeps everything. */
  end(): void {
    for (const table of REPLICA_TABLES) this.engine.exec(`DROP TABLE IF EXISTS ${table}`);
  }

  /** What has to be applied to have these rows and no others. */
  difference(rows: readonly SharedRow[]): SharedRow[] {
    const old = new Map(this.rows().map((row) => [rowName(row), row]));
    const changed = rows.filter((row) => {
      const table = this.tables.get(row.tbl);
      if (!table) return false;
      const before = old.get(rowName(row));
      old.delete(rowName(row));
      return before === undefined || !isSameRow(table, before.row, row.row ?? {});
    });
    return [...[...old.values()].map(({ tbl, key }) => ({ tbl, key, row: null })), ...changed];
  }

  rows(): SharedRow[] {
    return [...this.tables.values()].flatMap((table) => [...rowsOf(this.engine, table)]);
  }

  /** How many rows it has. */
  get size(): number {
    const counts = [...this.tables.keys()].map((table) => `(SELECT count(*) FROM ${table})`);
    const [row] = this.engine
      .prepare(`SELECT ${counts.join(' + ')}`)
      .raw()
      .all([]) as [number][];
    return Number(row?.[0]);
  }

  /** Equal for replicas with the same rows. */
  digest(): string {
    const lines = new Set(this.rows().map((row) => JSON.stringify(row)));
    return createHash('sha256')
      .update([...lines].join('\n'))
      .digest('hex');
  }

  #row(tbl: string, key: string): SharedRow['row'] {
    const table = this.tables.get(tbl);
    return table ? rowAt(this.engine, table, key) : null;
  }
}

function isAccount({ tbl, key }: SharedRow): boolean {
  return tbl === ACCOUNT.tbl && key === ACCOUNT.key;
}

function triggersOf(table: TableShape): string[] {
  const note = (of: 'old' | 'new') =>
    `INSERT OR IGNORE INTO changed_rows VALUES ('${table.name}', ${keyOf(table, `${of}.`)});`;
  const on = (event: string, notes: string) =>
    `CREATE TEMP TRIGGER note_${event}_${table.name} AFTER ${event} ON ${table.name} BEGIN ${notes} END`;
  return [on('INSERT', note('new')), on('UPDATE', note('old') + note('new')), on('DELETE', note('old'))];
}
