import type { Database } from './sql/database.ts';

/** Row of `facts` with how long conditions were seen of which nobody was told yet, by their ids, in milliseconds. */
const FACT = 'conditions_seen';
/** Further ones wait longer after a restart. */
const MAX_KEPT = 2_000;

export function seenConditions(database: Pick<Database, 'fact'>): ReadonlyMap<string, number> {
  return new Map(Object.entries(JSON.parse(database.fact(FACT) ?? '{}') as Record<string, number>));
}

/** Only inside {@link Database.write}. */
export function noteSeenConditions(
  database: Pick<Database, 'setFact' | 'forgetFact'>,
  seen: ReadonlyMap<string, number>,
) {
  if (seen.size === 0) database.forgetFact(FACT);
  else database.setFact(FACT, JSON.stringify(Object.fromEntries([...seen].slice(0, MAX_KEPT))));
}
