/** Ids of changed rows, by table; null: rows of any table may have changed. */
export type RowChanges = Readonly<Record<string, readonly string[]>> | null;

/** Beyond so many, a reader loads everything again anyway. */
const MOST = 100;

/** Collects which rows have changed, for one reader. Those whose change is rolled back count, too. */
export class ChangedRows {
  /** The table of each row; null: any. */
  #tables: Map<string, string> | null = new Map();
  #elsewhere: number | null = null;

  add(table: string, id: string): void {
    this.#tables?.set(id, table);
    if (this.#tables && this.#tables.size > MOST) this.#tables = null;
  }

  /** By another process, or a deletion with what depends on it. */
  addAny(): void {
    this.#tables = null;
  }

  /** Those since the last call. @param elsewhere a number that changes with the changes of other processes */
  take(elsewhere: number): RowChanges {
    if (elsewhere !== this.#elsewhere) this.addAny();
    this.#elsewhere = elsewhere;
    const tables = this.#tables;
    this.#tables = new Map();
    if (tables === null) return null;
    const changes: Record<string, string[]> = {};
    for (const [id, table] of tables) {
      changes[table] ??= [];
      changes[table].push(id);
    }
    return changes;
  }
}
