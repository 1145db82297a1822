import type { Database } from './sql/database.ts';
import { timestamp } from './store.ts';

/** Row of `facts` with the time of the last backup. */
const FACT = 'last_backup';

/** When the last backup was made, as stored times are; null: there is none. */
export function lastBackup(database: Database): string | null {
  return database.fact(FACT);
}

/** Remembers when the last backup was made; rejects as {@link Database.write} does. */
export function noteBackup(database: Database, now = Date.now()): Promise<void> {
  return database.write(() => database.setFact(FACT, timestamp(now)));
}
