import { createHash } from 'node:crypto';
import type Libsql from 'libsql';
import { REPLICA_TABLE } from '../sql/database.ts';
import { bind, type SqlValue } from '../sql/sql-engine.ts';

/** A value of a column as JSON has it: bytes in base64, marked by the column's type. */
type JsonValue = string | number | null;

/** What one row of a table has become. */
export interface SharedRow {
  readonly tbl: string;
  /** The values of its primary key, a JSON array. */
  readonly key: string;
  /** Its columns; null: it was deleted. */
  readonly row: Readonly<Record<string, JsonValue>> | null;
}

/** Of a copy that has nothing of its shared database yet. */
export const NOTHING_YET = 0;

/** Up to which change of which shared database a replica has everything. */
export interface Position {
  /** Random id of the shared database. */
  readonly cluster: string;
  readonly version: number;
  /** Random id of the commit with this version. */
  readonly batch: string;
}

/** Of which shared database a copy is one, and of which gateway. */
export type Origin = Pick<Position, 'cluster'> & { readonly node: string };

interface TableShape {
  readonly name: string;
  readonly columns: ReadonlyMap<string, 'bytes' | 'value'>;
  /** Columns that identify a row: the primary key, or else all of them. */
  readonly key: readonly string[];
}

/**
 * The copy of a shared database in this gateway's own one. Rows are written as they were sent, without the effects of foreign
 * keys: what a deletion takes with it was sent, too.
 */
export class Replica {
  readonly #tables = new Map<string, TableShape>();

  /** @param engine set up here to note which rows change */
  constructor(private readonly engine: Libsql.Database) {
    for (const table of tablesOf(engine)) this.#tables.set(table.name, table);
    engine.exec('CREATE TEMP TABLE changed_rows (tbl TEXT, key TEXT, PRIMARY KEY (tbl, key)) WITHOUT ROWID');
    // Else REPLACE would delete rows without being noticed.
    engine.exec('PRAGMA recursive_triggers = ON');
    for (const table of this.#tables.values()) for (const sql of triggersOf(table)) engine.exec(sql);
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
    return this.rows().every(isAccount);
  }

  /** Whether rows are of the account that this has. */
  isOfAccount(rows: readonly SharedRow[]): boolean {
    const [own, other] = [this.rows().find(isAccount), rows.find(isAccount)];
    return own?.row?.value !== undefined && own.row.value === other?.row?.value;
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
      this.#put(rows);
      this.#setPosition(position);
      this.engine.exec('DELETE FROM changed_rows');
      this.engine.exec('COMMIT');
    } catch (error) {
      if (this.engine.inTransaction) this.engine.exec('ROLLBACK');
      throw error;
    } finally {
      this.engine.exec('PRAGMA foreign_keys = ON');
    }
  }

  /** Makes a new database a copy that has nothing yet. */
  begin({ cluster, node }: Origin): void {
    this.#setPosition({ cluster, version: NOTHING_YET, batch: '' });
    this.engine.prepare(`UPDATE ${REPLICA_TABLE} SET node = ?`).run([node]);
  }

  /** Makes it a database of its own again, which keeps everything. */
  end(): void {
    this.engine.exec(`DROP TABLE ${REPLICA_TABLE}`);
  }

  /** What has to be applied to have these rows and no others. */
  difference(rows: readonly SharedRow[]): SharedRow[] {
    const old = new Map(this.rows().map((row) => [`${row.tbl} ${row.key}`, row]));
    const changed = rows.filter((row) => {
      if (!this.#tables.has(row.tbl)) return false;
      const name = `${row.tbl} ${row.key}`;
      const before = old.get(name);
      old.delete(name);
      return before === undefined || !this.#isEqual(before, row);
    });
    return [...[...old.values()].map(({ tbl, key }) => ({ tbl, key, row: null })), ...changed];
  }

  rows(): SharedRow[] {
    return [...this.#tables.values()].flatMap((table) => {
      const sql = `SELECT ${keyOf(table)}, ${[...table.columns.keys()].join(', ')} FROM ${table.name} ORDER BY 1`;
      const found = this.engine.prepare(sql).raw().all([]) as unknown[][];
      return found.map(([key, ...values]) => ({ tbl: table.name, key: String(key), row: toJson(table, values) }));
    });
  }

  /** Equal for replicas with the same rows. */
  digest(): string {
    const lines = new Set(this.rows().map((row) => JSON.stringify(row)));
    return createHash('sha256')
      .update([...lines].join('\n'))
      .digest('hex');
  }

  /** Columns that only a newer version knows do not count, nor those that an older one did not know: they have a default. */
  #isEqual({ row: own }: SharedRow, { tbl, row }: SharedRow): boolean {
    const columns = this.#tables.get(tbl)?.columns;
    return Object.entries(row ?? {}).every(([name, value]) => !columns?.has(name) || own?.[name] === value);
  }

  #setPosition({ cluster, version, batch }: Position): void {
    const columns = 'cluster TEXT NOT NULL, version INTEGER NOT NULL, batch TEXT NOT NULL, node TEXT NOT NULL';
    this.engine.exec(`CREATE TABLE IF NOT EXISTS ${REPLICA_TABLE} (${columns}) STRICT`);
    const update = this.engine.prepare(`UPDATE ${REPLICA_TABLE} SET cluster = ?, version = ?, batch = ?`);
    if (update.run([cluster, version, batch]).changes > 0) return;
    const insert = `INSERT INTO ${REPLICA_TABLE} VALUES (?, ?, ?, lower(hex(randomblob(8))))`;
    this.engine.prepare(insert).run([cluster, version, batch]);
  }

  /** All old rows go first: their unique values may have moved to others. */
  #put(rows: readonly SharedRow[]): void {
    for (const { tbl, key } of rows) {
      const table = this.#tables.get(tbl);
      if (!table) continue;
      this.engine
        .prepare(`DELETE FROM ${tbl} WHERE ${isRow(table)}`)
        .run(parametersOf(table, table.key, keyRow(table, key)));
    }
    for (const { tbl, row } of rows) {
      const table = this.#tables.get(tbl);
      if (!table || row === null) continue;
      const columns = Object.keys(row).filter((column) => table.columns.has(column));
      const sql = `INSERT INTO ${tbl} (${columns.join(', ')}) VALUES (${columns.map(() => '?').join(', ')})`;
      this.engine.prepare(sql).run(parametersOf(table, columns, row));
    }
  }

  #row(tbl: string, key: string): SharedRow['row'] {
    const table = this.#tables.get(tbl);
    if (!table) return null;
    const sql = `SELECT ${[...table.columns.keys()].join(', ')} FROM ${tbl} WHERE ${isRow(table)}`;
    const parameters = parametersOf(table, table.key, keyRow(table, key));
    const [values] = this.engine.prepare(sql).raw().all(parameters) as unknown[][];
    return values ? toJson(table, values) : null;
  }
}

function isAccount({ tbl, key }: SharedRow): boolean {
  return tbl === 'facts' && key === '["account"]';
}

function tablesOf(engine: Libsql.Database): TableShape[] {
  const sql =
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> ? ORDER BY name";
  const names = engine.prepare(sql).raw().all([REPLICA_TABLE]) as [string][];
  return names.map(([name]) => {
    const columns = engine.prepare(`PRAGMA table_info(${name})`).all([]) as {
      name: string;
      type: string;
      pk: number;
    }[];
    const key = columns.filter(({ pk }) => pk > 0).sort((a, b) => a.pk - b.pk);
    return {
      name,
      columns: new Map(columns.map((column) => [column.name, column.type === 'BLOB' ? 'bytes' : 'value'])),
      key: (key.length > 0 ? key : columns).map((column) => column.name),
    };
  });
}

function keyOf({ key }: TableShape, of = ''): string {
  return `json_array(${key.map((column) => of + column).join(', ')})`;
}

function triggersOf(table: TableShape): string[] {
  const note = (of: 'old' | 'new') =>
    `INSERT OR IGNORE INTO changed_rows VALUES ('${table.name}', ${keyOf(table, `${of}.`)});`;
  const on = (event: string, notes: string) =>
    `CREATE TEMP TRIGGER note_${event}_${table.name} AFTER ${event} ON ${table.name} BEGIN ${notes} END`;
  return [on('INSERT', note('new')), on('UPDATE', note('old') + note('new')), on('DELETE', note('old'))];
}

/** The condition that a row has a key. `IS` compares null, too. */
function isRow({ key }: TableShape): string {
  return key.map((column) => `${column} IS ?`).join(' AND ');
}

function keyRow(table: TableShape, key: string): Record<string, JsonValue> {
  const values = JSON.parse(key) as JsonValue[];
  return Object.fromEntries(table.key.map((column, place) => [column, values[place] ?? null]));
}

function toJson({ columns }: TableShape, values: readonly unknown[]): Record<string, JsonValue> {
  return Object.fromEntries(
    [...columns].map(([name, kind], place) => {
      const value = values[place];
      if (value === null || value === undefined) return [name, null];
      if (kind === 'bytes') return [name, Buffer.from(value as ArrayBuffer).toString('base64')];
      return [name, typeof value === 'number' ? value : String(value)];
    }),
  );
}

function parametersOf(table: TableShape, names: readonly string[], row: Readonly<Record<string, JsonValue>>) {
  return bind(
    names.map((name): SqlValue => {
      const value = row[name] ?? null;
      return typeof value === 'string' && table.columns.get(name) === 'bytes' ? Buffer.from(value, 'base64') : value;
    }),
  );
}
