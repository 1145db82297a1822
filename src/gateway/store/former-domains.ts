import type { Database } from './sql/database.ts';

/** Row of `facts`: the base domains that the gateway has had, the present one first, as JSON. */
const FACT = 'base_domains';
const MAX_FORMER = 8;

/**
 * Remembers the gateway's base domain.
 *
 * @returns those that it had before: devices may still know only them
 */
export async function formerDomains(database: Database, present: string): Promise<readonly string[]> {
  const known = JSON.parse(database.fact(FACT) ?? '[]') as string[];
  const former = known.filter((domain) => domain !== present).slice(0, MAX_FORMER);
  if (known[0] !== present && database.unwritable === null)
    await database.write(() => database.setFact(FACT, JSON.stringify([present, ...former])), null);
  return former;
}
