import type { Database } from './database.ts';
import { type Identified, type RowOf, Table } from './table.ts';

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
