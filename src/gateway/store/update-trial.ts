import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Database } from './sql/database.ts';
import { DatabaseHeld } from './sql/database-problems.ts';

/** In the gateway's folder while a new version of it is tried, whose database would go back with the version before. */
export const TRIAL_MARK = 'update-trial';

/** Longer than a trial takes. An updater that comes back later no longer restores the database. */
const MAX_TRIAL_MS = 15 * 60_000;

/**
 * Makes changes wait while a new version of the gateway is tried: what was answered with success must not be lost.
 *
 * @param folder of the gateway
 */
export function holdDuringTrial(database: Database, folder: string): void {
  const mark = join(folder, TRIAL_MARK);
  if (!existsSync(mark)) return;
  const end = performance.now() + MAX_TRIAL_MS;
  let isOver = false;
  database.hold(() => {
    if (!isOver && existsSync(mark) && (performance.now() < end || !isRemoved(mark))) return new DatabaseHeld(mark);
    isOver = true;
    return null;
  });
}

function isRemoved(mark: string): boolean {
  try {
    rmSync(mark);
    return true;
  } catch {
    // On a disk that cannot be written, nothing could be changed either.
    return false;
  }
}
