import type { Database } from './database.ts';

/** Milliseconds after which changes are looked for again. Those of other gateways arrive here within half a second. */
const FRESH_MS = 400;

/** Tells those who keep rows in memory whether the database has changed, by this process or another one. */
export class ChangeWatch {
  #checkedAt = Number.NEGATIVE_INFINITY;
  #seen = '';

  constructor(private readonly database: Database) {}

  /** Whether anything has changed since the last call that said so; true at first. It looks a few times a second at most. */
  hasChanged(): boolean {
    const now = performance.now();
    if (now - this.#checkedAt < FRESH_MS) return false;
    this.#checkedAt = now;
    const [row] = this.database.all<{ data_version: number }>('PRAGMA data_version');
    const seen = `${row?.data_version} ${this.database.commits}`;
    if (seen === this.#seen) return false;
    this.#seen = seen;
    return true;
  }
}
