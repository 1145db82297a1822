import { hash } from 'node:crypto';
import type Libsql from 'libsql';
import { REPLICA_TABLE, REPLICA_TABLES } from '../sql/database.ts';
import { bind, type SqlValue } from '../sql/sql-engine.ts';

/** A value of a column as JSON has it: bytes in base64, marked by the column's type. */
export type JsonValue = string | number | null;

/** What one row of a table has become. */
export interface SharedRow {
  readonly tbl: string;
  /** The values of its primary key, a JSON array. */
  readonly key: string;
  /** Its columns; null: it was deleted. */
  readonly row: Readonly<Record<string, JsonValue>> | null;
}

/** Up to which change of which shared database a replica has everything. */
export interface Position {
  /** Random id of the shared database. */
  readonly cluster: string;
  readonly version: number;
  /** Random id of the commit with this version. */
  readonly batch: string;
}

export interface TableShape {
  readonly name: string;
  readonly columns: ReadonlyMap<string, ColumnShape>;
  /** Columns that identify a row: the primary key, or else all of them. */
  readonly key: readonly string[];
}

interface ColumnShape {
  readonly kind: 'bytes' | 'value';
  /** What rows have that were written before the column was added. */
  readonly default: JsonValue;
}

export type Tables = ReadonlyMap<string, TableShape>;

/** The tables of which a replica has copies. */
export function tablesOf(engine: Libsql.Database): Tables {
  const sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";
  const names = engine.prepare(sql).raw().all([]) as [string][];
  const shared = names.flat().filter((name) => !REPLICA_TABLES.includes(name));
  return new Map(shared.map((name) => [name, shapeOf(engine, name)]));
}

function shapeOf(engine: Libsql.Database, name: string): TableShape {
  const columns = engine.prepare(`PRAGMA table_info(${name})`).all([]) as {
    name: string;
    type: string;
    dflt_value: string | null;
    pk: number;
  }[];
  const key = columns.filter(({ pk }) => pk > 0).sort((a, b) => a.pk - b.pk);
  return {
    name,
    columns: new Map(
      columns.map((column) => [
        column.name,
        { kind: column.type === 'BLOB' ? 'bytes' : 'value', default: literal(column.dflt_value) },
      ]),
    ),
    key: (key.length > 0 ? key : columns).map((column) => column.name),
  };
}

/** A number or a text as SQL has it. */
function literal(sql: string | null): JsonValue {
  if (sql === null) return null;
  return sql.startsWith("'") ? sql.slice(1, -1).replaceAll("''", "'") : Number(sql);
}

/** The SQL of a row's key. */
export function keyOf({ key }: TableShape, of = ''): string {
  return `json_array(${key.map((column) => of + column).join(', ')})`;
}

/** All rows of a table in the order of their keys, one after another. */
export function* rowsOf(engine: Libsql.Database, table: TableShape): Generator<SharedRow> {
  const sql = `SELECT ${keyOf(table)}, ${[...table.columns.keys()].join(', ')} FROM ${table.name} ORDER BY 1`;
  for (const found of engine.prepare(sql).raw().iterate([])) {
    const [key, ...values] = found as unknown[];
    yield { tbl: table.name, key: String(key), row: toJson(table, values) };
  }
}

/** What a row of a table has now; null: there is none. */
export function rowAt(engine: Libsql.Database, table: TableShape, key: string): SharedRow['row'] {
  const sql = `SELECT ${[...table.columns.keys()].join(', ')} FROM ${table.name} WHERE ${isRow(table)}`;
  const [values] = engine
    .prepare(sql)
    .raw()
    .all(parametersOf(table, table.key, keyRow(table, key))) as unknown[][];
  return values ? toJson(table, values) : null;
}

/**
 * Writes what has become of rows; those of unknown tables, and unknown columns, are left out. All old rows go first: their unique
 * values may have moved to others.
 *
 * @param rows each row once; they are gone through twice
 */
export function putRows(engine: Libsql.Database, tables: Tables, rows: Iterable<SharedRow>): void {
  const known = new Map<string, Libsql.Statement>();
  const prepared = (sql: string) => {
    const statement = known.get(sql) ?? engine.prepare(sql);
    known.set(sql, statement);
    return statement;
  };
  for (const { tbl, key } of rows) {
    const table = tables.get(tbl);
    if (!table) continue;
    prepared(`DELETE FROM ${tbl} WHERE ${isRow(table)}`).run(parametersOf(table, table.key, keyRow(table, key)));
  }
  for (const { tbl, row } of rows) {
    const table = tables.get(tbl);
    if (!table || row === null) continue;
    const columns = Object.keys(row).filter((column) => table.columns.has(column));
    const sql = `INSERT INTO ${tbl} (${columns.join(', ')}) VALUES (${columns.map(() => '?').join(', ')})`;
    prepared(sql).run(parametersOf(table, columns, row));
  }
}

/** Columns that only a newer version knows do not count, nor those that an older one did not know: they have a default. */
export function isSameRow(table: TableShape, own: SharedRow['row'], row: NonNullable<SharedRow['row']>): boolean {
  return Object.entries(row).every(([name, value]) => !table.columns.has(name) || own?.[name] === value);
}

/** Of one row of a copy: in which part of its table it is, and what is summed up for the part. */
function digestOf(table: TableShape, { key, row }: SharedRow): { part: number; sum: bigint } {
  const values = [...table.columns.keys()].map((name) => JSON.stringify(row?.[name] ?? null));
  return {
    part: hash('sha256', key, 'buffer').readUInt8(0),
    sum: hash('sha256', `${key}[${values.join(', ')}]`, 'buffer').readBigInt64BE(0),
  };
}

/** The SQL of PostgreSQL for the part of its table in which a row is. */
export const PART_OF_ROW = "get_byte(sha256(convert_to(key, 'UTF8')), 0)";

/** The SQL of PostgreSQL that sums up the rows of a table's part, as {@link digestsOf} does. */
export function sqlSum({ columns }: TableShape): string {
  const values = [...columns].map(([name, { default: value }]) => {
    const column = `row->'${name}'`;
    return value === null ? column : `COALESCE(${column}, '${JSON.stringify(value)}'::jsonb)`;
  });
  const bytes = `sha256(convert_to(key || jsonb_build_array(${values.join(', ')})::text, 'UTF8'))`;
  return `sum(('x' || encode(substr(${bytes}, 1, 8), 'hex'))::bit(64)::bigint)`;
}

/** Identifies the part of a table in which a row is. */
export const partName = (tbl: string, part: number) => `${tbl} ${part}`;

/** The part of its table in which a row is, see {@link partName}. */
export function partOf({ tbl, key }: Pick<SharedRow, 'tbl' | 'key'>): string {
  return partName(tbl, hash('sha256', key, 'buffer').readUInt8(0));
}

/** Names a row of any table. */
export const rowName = ({ tbl, key }: Pick<SharedRow, 'tbl' | 'key'>) => `${tbl} ${key}`;

/**
 * What a copy has, summed up for each part of each table, by {@link partName}: the sums do not depend on an order.
 * @param except rows that are left out, by {@link rowName}
 */
export function digestsOf(engine: Libsql.Database, tables: Tables, except: ReadonlySet<string>): Map<string, bigint> {
  const sums = new Map<string, bigint>();
  for (const table of tables.values()) {
    for (const row of rowsOf(engine, table)) {
      if (except.has(rowName(row))) continue;
      const { part, sum } = digestOf(table, row);
      const name = partName(table.name, part);
      sums.set(name, (sums.get(name) ?? 0n) + sum);
    }
  }
  return sums;
}

/** Notes in a copy what it has. */
export function writePosition(engine: Libsql.Database, { cluster, version, batch }: Position): void {
  const columns = 'cluster TEXT NOT NULL, version INTEGER NOT NULL, batch TEXT NOT NULL, node TEXT NOT NULL';
  engine.exec(`CREATE TABLE IF NOT EXISTS ${REPLICA_TABLE} (${columns}) STRICT`);
  const update = engine.prepare(`UPDATE ${REPLICA_TABLE} SET cluster = ?, version = ?, batch = ?`);
  if (update.run([cluster, version, batch]).changes > 0) return;
  const insert = `INSERT INTO ${REPLICA_TABLE} VALUES (?, ?, ?, lower(hex(randomblob(8))))`;
  engine.prepare(insert).run([cluster, version, batch]);
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
    [...columns].map(([name, { kind }], place) => {
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
      const isBytes = typeof value === 'string' && table.columns.get(name)?.kind === 'bytes';
      return isBytes ? Buffer.from(value, 'base64') : value;
    }),
  );
}
