import { randomUUID } from 'node:crypto';

/** Tells readers which tables may have changed since they last looked. */
export interface TableVersions {
  /** Changes with a change that may concern any table: by another process, or a deletion with what depends on it. */
  readonly all: string;
  /** The number of changes of each table that this process has changed. */
  readonly tables: Readonly<Record<string, number>>;
}

/** Counts the changes of tables. Those that are rolled back count, too. */
export class ChangeCount {
  /** So that no count is like one before a restart. */
  readonly #start = randomUUID().slice(0, 8);
  #all = 0;
  #elsewhere = 0;
  readonly #tables = new Map<string, number>();

  changed(table: string): void {
    this.#tables.set(table, (this.#tables.get(table) ?? 0) + 1);
  }

  anyChanged(): void {
    this.#all += 1;
  }

  /** @param elsewhere a number that changes with the changes of other processes */
  versions(elsewhere: number): TableVersions {
    if (elsewhere !== this.#elsewhere) this.#all += 1;
    this.#elsewhere = elsewhere;
    return { all: `${this.#start}-${this.#all}`, tables: Object.fromEntries(this.#tables) };
  }
}
