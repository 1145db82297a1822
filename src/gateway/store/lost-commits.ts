import type { Database } from './sql/database.ts';

/** Fact with what was lost last. */
const FACT = 'lost_commits';

/** What the shared database has lost last, as far as its gateways know. */
export interface LostCommits {
  /** The last commit that was kept. */
  readonly after: number;
  readonly commits: number;
  /** Whether more may be lost. */
  readonly isLeast: boolean;
  /** When the first of them was made, RFC 3339; null: not known. */
  readonly since: string | null;
  /** When a gateway noticed it, RFC 3339. */
  readonly found: string;
  /** The commit after which that was written: a loss that begins later is another one. */
  readonly reported: number;
  /** How many of them the audit log has; 0: it has none yet. */
  readonly recorded: number;
}

/** What the shared database has lost last; null: nothing that is known. */
export function lostCommits(database: Pick<Database, 'fact'>): LostCommits | null {
  const fact = database.fact(FACT);
  return fact === null ? null : (JSON.parse(fact) as LostCommits);
}

/** Remembers what was lost. Only inside {@link Database.write}. */
export function noteLostCommits(database: Pick<Database, 'setFact'>, lost: LostCommits): void {
  database.setFact(FACT, JSON.stringify(lost));
}
