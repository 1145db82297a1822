import type { z } from 'zod';
import type { Database } from './database.ts';
import type { SqlValue } from './sql-engine.ts';

export interface Column<T> {
  read(value: unknown): T;
  write(value: T): SqlValue;
}

export const text: Column<string> = { read: String, write: (value) => value };
export const integer: Column<number> = { read: Number, write: (value) => value };
export const flag: Column<boolean> = { read: (value) => value === 1, write: (value) => value };
/** The engine accepts Buffers but may return an ArrayBuffer. */
export const blob: Column<Buffer> = { read: (value) => Buffer.from(value as ArrayBuffer), write: (value) => value };

/** A value stored as JSON and always read as a whole. */
export function json<T>(): Column<T> {
  return { read: (value) => JSON.parse(String(value)) as T, write: (value) => JSON.stringify(value) };
}

export function nullable<T>(column: Column<T>): Column<T | null> {
  return {
    read: (value) => (value === null ? null : column.read(value)),
    write: (value) => (value === null ? null : column.write(value)),
  };
}

/** The id of every table, which also orders its lists. */
interface Identified {
  id: Column<string>;
  created_at: Column<string>;
}

export type RowOf<Columns> = { [Name in keyof Columns]: Columns[Name] extends Column<infer T> ? T : never } & {
  id: string;
};

/** The columns for the members of a schema, without the URI, which is not stored. */
export type ColumnsOf<S extends z.ZodObject> = Identified & {
  [Name in Exclude<keyof z.output<S>, 'uri'>]-?: Column<Exclude<z.output<S>[Name], undefined>>;
};

/** A column for each member of a schema; lists and objects are stored as JSON. @throws when a schema is something else */
export function columnsOf<S extends z.ZodObject>({ shape }: S): ColumnsOf<S> {
  const members = Object.entries(shape as Record<string, z.ZodType>).filter(([name]) => name !== 'uri');
  return Object.fromEntries(members.map(([name, schema]) => [name, columnFor(schema)])) as ColumnsOf<S>;
}

function columnFor(schema: z.ZodType): Column<unknown> {
  const { type, innerType } = schema.def as { type: string; innerType?: z.ZodType };
  // Such as one with a default.
  if (innerType) return type === 'nullable' ? nullable(columnFor(innerType)) : columnFor(innerType);
  const column = COLUMNS[type];
  if (column === undefined) throw new Error(`there is no column for a schema of the type ${type}`);
  return column as Column<unknown>;
}

const COLUMNS: Readonly<Record<string, unknown>> = {
  ...{ string: text, enum: text, number: integer, boolean: flag },
  ...{ array: json(), object: json(), record: json() },
};

/** A row whose columns may be left out that are null then. */
export type NewRow<Columns> = Partial<RowOf<Columns>> & {
  [Name in keyof Columns as null extends RowOf<Columns>[Name] ? never : Name]: RowOf<Columns>[Name];
};

export const annotatedColumns = { id: text, created_at: text, description: nullable(text), metadata: nullable(text) };

/** Greater than every identifier. */
export const END = '~';

/** A condition, or a value, in SQL, with the values of its parameters. */
export type SqlPart = readonly [sql: string, ...values: SqlValue[]];

/** By what rows are sorted, and the value of the last row that somebody has; undefined: none. */
export interface ListOrder {
  readonly value: SqlPart;
  readonly isDescending: boolean;
  readonly after: string | undefined;
}

/** A table of resources. Change it only inside {@link Database.write}. */
export class Table<Columns extends Identified> {
  readonly #columns: [name: string, column: Column<unknown>][];
  /** Without secrets: bytes are hashes of them, or sealed. */
  readonly #open: string[];
  readonly #select: string;
  readonly #get: string;
  readonly #page: string;
  readonly #insert: string;
  readonly #update: string;
  readonly #delete: string;

  constructor(
    protected readonly database: Database,
    readonly name: string,
    columns: Columns,
  ) {
    this.#columns = Object.entries(columns);
    this.#open = this.#columns.filter(([, column]) => column !== blob).map(([column]) => column);
    const names = this.#columns.map(([column]) => column);
    this.#select = `SELECT ${names.join(', ')} FROM ${name}`;
    this.#get = `${this.#select} WHERE id = ?`;
    this.#page = `${this.#select} WHERE id < ? ORDER BY id DESC LIMIT ?`;
    this.#insert = `INSERT INTO ${name} (${names.join(', ')}) VALUES (${names.map(() => '?').join(', ')})`;
    this.#update = `UPDATE ${name} SET ${names.map((column) => `${column} = ?`).join(', ')} WHERE id = ?`;
    this.#delete = `DELETE FROM ${name} WHERE id = ?`;
  }

  has(column: string): boolean {
    return this.#columns.some(([name]) => name === column);
  }

  /** @param id any text, even if no id can have this form */
  get(id: string): RowOf<Columns> | null {
    if (id.includes('\0')) return null;
    const values = this.database.values(this.#get, [id]);
    return values && this.#read(values);
  }

  /** A page of the list, newest first: rows older than `before`, which may have been deleted. */
  page(before: string | null, limit: number): RowOf<Columns>[] {
    return this.#rows(this.#page, [before ?? END, limit]);
  }

  where(condition: string, parameters: readonly SqlValue[]): RowOf<Columns>[] {
    return this.#rows(`${this.#select} WHERE ${condition}`, parameters);
  }

  /** Those for which all conditions hold, newest first: rows older than `before`. */
  listed(conditions: readonly SqlPart[], before: string, limit: number): RowOf<Columns>[] {
    const all = ['id < ?', ...conditions.map(([sql]) => sql)].join(' AND ');
    return this.where(`${all} ORDER BY id DESC LIMIT ?`, [before, ...conditions.flatMap(([, ...own]) => own), limit]);
  }

  /** Those for which all conditions hold, in an order, and newest first where that is the same; rows after `before`. */
  sorted(
    conditions: readonly SqlPart[],
    { value: [value, ...parameters], isDescending, after }: ListOrder,
    before: string,
    limit: number,
  ): { items: RowOf<Columns>[]; values: string[] } {
    // Only ids are sorted: rows may be large.
    const all = conditions.map(([sql]) => sql).join(' AND ') || 'TRUE';
    const rows = `SELECT id, CAST(coalesce(${value}, '') AS TEXT) AS value FROM ${this.name} WHERE ${all}`;
    const next = after === undefined ? 'TRUE' : `(value ${isDescending ? '<' : '>'} ? OR (value = ? AND id < ?))`;
    const order = `value ${isDescending ? 'DESC' : 'ASC'}, id DESC`;
    const places = this.database.allValues(`SELECT id, value FROM (${rows}) WHERE ${next} ORDER BY ${order} LIMIT ?`, [
      ...parameters,
      ...conditions.flatMap(([, ...own]) => own),
      ...(after === undefined ? [] : [after, after, before]),
      limit,
    ]);
    const found = places.flatMap(([id, own]) => {
      const row = this.get(String(id));
      return row === null ? [] : [{ row, value: String(own) }];
    });
    return { items: found.map(({ row }) => row), values: found.map((each) => each.value) };
  }

  /** The row with a value in a column that no two rows have in common. */
  by<Name extends keyof Columns & string>(column: Name, value: RowOf<Columns>[Name] & SqlValue): RowOf<Columns> | null {
    return this.where(`${column} = ?`, [value])[0] ?? null;
  }

  count(condition: string, parameters: readonly SqlValue[]): number {
    const sql = `SELECT COUNT(*) FROM ${this.name} WHERE ${condition}`;
    return Number(this.database.values(sql, parameters)?.[0]);
  }

  /** Completes a row: columns that are left out are null. */
  newRow(given: NewRow<Columns>): RowOf<Columns> {
    return { ...Object.fromEntries(this.#columns.map(([name]) => [name, null])), ...given } as RowOf<Columns>;
  }

  insert(row: RowOf<Columns>): void {
    this.database.changes.add(this.name, row.id);
    this.database.run(this.#insert, this.#write(row));
    if (this.database.notesChanges) this.#note(null, row);
  }

  update(row: RowOf<Columns>): void {
    const before = this.database.notesChanges ? this.get(row.id) : null;
    this.database.changes.add(this.name, row.id);
    this.database.run(this.#update, [...this.#write(row), row.id]);
    if (before !== null) this.#note(before, row);
  }

  delete(id: string): boolean {
    const before = this.database.notesChanges ? this.get(id) : null;
    // Rows of other tables may refer to it.
    this.database.changes.addAny();
    const isDeleted = this.database.run(this.#delete, [id]) > 0;
    if (before !== null) this.#note(before, null);
    return isDeleted;
  }

  #note(before: RowOf<Columns> | null, after: RowOf<Columns> | null): void {
    const shown = (row: RowOf<Columns> | null) =>
      row && Object.fromEntries(this.#open.map((name) => [name, row[name as keyof Columns]]));
    this.database.noteChange({ table: this.name, before: shown(before), after: shown(after) });
  }

  #rows(sql: string, parameters: readonly SqlValue[]): RowOf<Columns>[] {
    return this.database.allValues(sql, parameters).map((values) => this.#read(values));
  }

  #read(values: readonly unknown[]): RowOf<Columns> {
    const result: Record<string, unknown> = {};
    this.#columns.forEach(([name, column], place) => {
      result[name] = column.read(values[place]);
    });
    return result as RowOf<Columns>;
  }

  #write(row: RowOf<Columns>): SqlValue[] {
    return this.#columns.map(([name, column]) => column.write(row[name as keyof Columns]));
  }
}

/** The table with this name and columns, for a class with queries of its own. */
export const tableOf = <Columns extends Identified>(name: string, columns: Columns) =>
  class extends Table<Columns> {
    constructor(database: Database) {
      super(database, name, columns);
    }
  };

/** A row with new values in some of its columns; absent and undefined columns keep theirs. */
export function changed<Row extends object>(row: Row, changes: { [Name in keyof Row]?: Row[Name] | undefined }): Row {
  const result = { ...row };
  for (const name of Object.keys(changes) as (keyof Row)[]) {
    const value = changes[name];
    if (value !== undefined) result[name] = value;
  }
  return result;
}

/** A table whose rows are also kept in memory, in another form, by one reader that follows their changes. */
export class TouchedTable<Columns extends Identified> extends Table<Columns> {
  #touched = new Set<string>();

  constructor(database: Database, name: string, columns: Columns) {
    super(database, name, columns);
    database.onRowApplied((table, id) => {
      if (table === name) this.#touched.add(id);
    });
  }

  /** The rows that may have changed since the last call, if their transaction commits. */
  takeTouched(): ReadonlySet<string> {
    const touched = this.#touched;
    if (touched.size > 0) this.#touched = new Set();
    return touched;
  }

  override insert(row: RowOf<Columns>): void {
    this.#touched.add(row.id);
    super.insert(row);
  }

  override update(row: RowOf<Columns>): void {
    this.#touched.add(row.id);
    super.update(row);
  }

  override delete(id: string): boolean {
    this.#touched.add(id);
    return super.delete(id);
  }
}
