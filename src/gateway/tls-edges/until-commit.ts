import type { Database } from '../store/database.ts';

/** What `read` gives, read again only after something was written to the database. */
export function untilCommit<T>(
  database: Pick<Database, 'commits'>,
  read: (id: string) => T | null,
): (id: string) => T | null {
  const known = new Map<string, T | null>();
  let at = database.commits;
  return (id) => {
    if (at !== database.commits) {
      at = database.commits;
      known.clear();
    }
    const value = known.get(id);
    if (value !== undefined) return value;
    const fresh = read(id);
    known.set(id, fresh);
    return fresh;
  };
}
