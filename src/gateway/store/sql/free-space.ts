import { type Clock, systemClock } from '../../../lib/time/clock.ts';
import type { Database } from './database.ts';

/** How often it is checked, and the pause between the steps, each of which holds up the event loop for milliseconds. */
const CHECK_MS = 60_000;
const PAUSE_MS = 100;

/**
 * From now on, gives the disk space back that deleted rows of a database took.
 *
 * @returns ends it
 */
export function keepSmall(database: Pick<Database, 'giveBackSpace'>, clock: Clock = systemClock): () => void {
  let cancel = () => {};
  const next = (isMoreLeft: boolean) => {
    cancel = clock.after(isMoreLeft ? PAUSE_MS : CHECK_MS, () => next(database.giveBackSpace()));
  };
  next(false);
  return () => cancel();
}
