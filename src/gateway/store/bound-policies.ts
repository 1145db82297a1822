import type { Database } from './sql/database.ts';
import { json, type RowOf, Table, text } from './sql/table.ts';

const columns = {
  /** The URL of the endpoint. */
  id: text,
  /** When its policy was last another one. */
  created_at: text,
  credential_id: text,
  policy_digest: text,
  /** Of members of a pool, which can have several policies: the last ones before, newest first. */
  earlier_digests: json<string[]>(),
  /** Who may come in, as the list of endpoints says it. */
  access: json<readonly string[]>(),
};

export type BoundPolicyRow = RowOf<typeof columns>;

const MAX_EARLIER = 8;
/** Endpoints whose policies are known; rows that are added before they are counted again, and forgotten at once. */
const MAX_KNOWN = 100_000;
const COUNTED_EVERY = 100;
/** Of the authtoken with the most: one with many names pushes out none of others. */
const FORGET = `DELETE FROM bound_policies WHERE id IN (
  SELECT id FROM bound_policies WHERE credential_id = (
    SELECT credential_id FROM bound_policies GROUP BY credential_id ORDER BY COUNT(*) DESC LIMIT 1)
  ORDER BY created_at LIMIT ?)`;

/** Which policies agents had bound last. Change it only inside {@link Database.write}. */
export class BoundPolicies extends Table<typeof columns> {
  #uncounted = COUNTED_EVERY;

  constructor(
    database: Database,
    private readonly max = MAX_KNOWN,
  ) {
    super(database, 'bound_policies', columns);
  }

  /** Keeps what an endpoint has now, unless it had that before. */
  put(row: Omit<BoundPolicyRow, 'earlier_digests'>, isPooled: boolean): void {
    const before = this.get(row.id);
    if (before === null) {
      this.#makeRoom();
      this.insert({ ...row, earlier_digests: [] });
    } else if (!hasPolicy(before, row.policy_digest, isPooled)) {
      const earlier = isPooled ? [before.policy_digest, ...before.earlier_digests].slice(0, MAX_EARLIER) : [];
      this.update({ ...row, earlier_digests: earlier });
    }
  }

  #makeRoom(): void {
    this.#uncounted += 1;
    if (this.#uncounted < COUNTED_EVERY) return;
    this.#uncounted = 0;
    if (this.count('id > ?', ['']) < this.max) return;
    this.database.changes.addAny();
    this.database.run(FORGET, [2 * COUNTED_EVERY]);
  }
}

/** Whether an endpoint has had a policy last; of a pool, one of the last. */
export function hasPolicy(
  { policy_digest, earlier_digests }: Pick<BoundPolicyRow, 'policy_digest' | 'earlier_digests'>,
  digest: string,
  isPooled: boolean,
): boolean {
  return policy_digest === digest || (isPooled && earlier_digests.includes(digest));
}
