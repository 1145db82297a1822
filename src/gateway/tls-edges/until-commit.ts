import type { Database } from '../store/sql/database.ts';

/** Caches the results of `read` until the next commit to the database. */
export function untilCommit<T>(
  database: Pick<Database, 'commits'>,
  read: (id: string) => T | null,
): (id: string) => T | null {
  const cache = new Map<string, T | null>();
  let at = database.commits;
  return (id) => {
    if (at !== database.commits) {
      at = database.commits;
      cache.clear();
    }
    const value = cache.get(id);
    if (value !== undefined) return value;
    const fresh = read(id);
    cache.set(id, fresh);
    return fresh;
  };
}
