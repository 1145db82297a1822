import { createHmac } from 'node:crypto';
import { BoundedMap } from '../../lib/bounded-map.ts';
import type { SecretsBox } from '../../lib/secrets-box.ts';
import { Person } from '../../management/resources/person.ts';
import { ChangeWatch } from './sql/change-watch.ts';
import type { Database } from './sql/database.ts';
import type { ListedBy } from './sql/list-choice.ts';
import { blob, columnsOf, integer, type RowOf, Table, tableOf, text } from './sql/table.ts';

/** People whose rows are kept in memory. */
const MAX_KNOWN = 10_000;

const personColumns = { ...columnsOf(Person.omit({ passkeys: true })), password_hash: blob };

export const PEOPLE_LISTED_BY: ListedBy = {
  searched: ['id', 'email', 'name', 'groups'],
  sorted: { email: 'email', name: 'lower(name)' },
};

export type PersonRow = RowOf<typeof personColumns>;

/** People who sign in at this gateway. */
export class People extends Table<typeof personColumns> {
  readonly #known = new BoundedMap<string, PersonRow | null>(MAX_KNOWN);
  readonly #changes: ChangeWatch;

  constructor(database: Database) {
    super(database, 'people', personColumns);
    this.#changes = new ChangeWatch(database);
  }

  /** @param email in any case */
  byEmail(email: string): PersonRow | null {
    return this.where('email = ?', [email.toLowerCase()])[0] ?? null;
  }

  /** Whether anybody may use the dashboard. */
  get hasOperators(): boolean {
    return this.where('dashboard = 1 LIMIT 1', []).length > 0;
  }

  /** What {@link get} has returned within the last second or so, from memory: each request of a signed-in person asks. */
  recent(id: string): PersonRow | null {
    if (this.#changes.hasChanged()) this.#known.clear();
    const known = this.#known.get(id);
    if (known !== undefined) return known;
    const row = this.get(id);
    this.#known.set(id, row);
    return row;
  }
}

const DAY_MS = 86_400_000;
/** Days for which a network stays familiar that a person does not use. */
const FAMILIAR_DAYS = 90;
/** Days after which another use is written. */
const WRITTEN_AGAIN_DAYS = 7;
/** Of one person; more push out the one that was used the longest ago. */
const MAX_FAMILIAR = 20;

/** Client networks from which people have signed in with their passwords. The database has keyed digests of them. */
export class FamiliarNetworks {
  /** @param now RFC 3339, in whole seconds */
  constructor(
    private readonly database: Database,
    private readonly box: SecretsBox,
    private readonly now: () => string,
  ) {}

  /** @param personId any text: that of nobody takes as long */
  has(personId: string, network: string): boolean {
    return this.#usedSince(personId, this.#digest(personId, network), FAMILIAR_DAYS);
  }

  /** Writes once a week at most for each network of a person. */
  async remember(personId: string, network: string): Promise<void> {
    const digest = this.#digest(personId, network);
    if (this.#usedSince(personId, digest, WRITTEN_AGAIN_DAYS)) return;
    await this.database.write(() => {
      const { database } = this;
      database.run('DELETE FROM familiar_networks WHERE used_at < ?', [this.#daysAgo(FAMILIAR_DAYS)]);
      // Somebody may have removed the person meanwhile.
      const added =
        'INSERT OR REPLACE INTO familiar_networks (person_id, network, used_at) SELECT id, ?, ? FROM people';
      database.run(`${added} WHERE id = ?`, [digest, this.now(), personId]);
      const others = 'FROM familiar_networks WHERE person_id = ? AND network <> ?';
      const kept = `SELECT network ${others} ORDER BY used_at DESC LIMIT ${MAX_FAMILIAR - 1}`;
      database.run(`DELETE ${others} AND network NOT IN (${kept})`, [personId, digest, personId, digest]);
    }, null);
  }

  /** Inside a transaction. */
  forgetOf(personId: string): void {
    this.database.run('DELETE FROM familiar_networks WHERE person_id = ?', [personId]);
  }

  #usedSince(personId: string, digest: string, days: number): boolean {
    const sql = 'SELECT 1 FROM familiar_networks WHERE person_id = ? AND network = ? AND used_at >= ?';
    return this.database.values(sql, [personId, digest, this.#daysAgo(days)]) !== null;
  }

  #daysAgo(days: number): string {
    return new Date(Date.parse(this.now()) - days * DAY_MS).toISOString();
  }

  #digest(personId: string, network: string): string {
    return createHmac('sha256', this.box.keyFor('familiar networks'))
      .update(`${personId} ${network}`)
      .digest('base64url');
  }
}

const passkeyColumns = {
  id: text,
  created_at: text,
  person_id: text,
  credential_id: text,
  public_key: blob,
  counter: integer,
  name: text,
};

export type PasskeyRow = RowOf<typeof passkeyColumns>;

/** Challenges of one passkey that are remembered: nobody signs in more often before their forms expire. */
const MAX_USED = 100;

export class Passkeys extends tableOf('passkeys', passkeyColumns) {
  byCredential(credentialId: string): PasskeyRow | null {
    return this.where('credential_id = ?', [credentialId])[0] ?? null;
  }

  ofPerson(personId: string): PasskeyRow[] {
    return this.where('person_id = ?', [personId]);
  }

  /**
   * Uses a passkey for a challenge, once, inside a transaction: also a copy of what an authenticator without a counter has
   * answered is worth nothing afterwards, here and at other gateways.
   *
   * @param passkey with its counter as of now
   * @param expiresAt when no gateway accepts a form with the challenge any more; both times are RFC 3339
   * @returns false when it was used for the challenge, or later, or too often, or was replaced
   */
  use({ id, counter }: PasskeyRow, challenge: string, expiresAt: string, now: string): boolean {
    const row = this.get(id);
    const isCounted = counter > 0 || (row?.counter ?? 0) > 0;
    if (row === null || (isCounted && counter <= row.counter)) return false;
    const { database } = this;
    database.run('DELETE FROM used_challenges WHERE expires_at < ?', [now]);
    const [used] = database.values('SELECT COUNT(*) FROM used_challenges WHERE passkey_id = ?', [id]) ?? [];
    if (Number(used) >= MAX_USED) return false;
    const sql = 'INSERT OR IGNORE INTO used_challenges (challenge, passkey_id, expires_at) VALUES (?, ?, ?)';
    if (database.run(sql, [challenge, id, expiresAt]) === 0) return false;
    if (counter !== row.counter) this.update({ ...row, counter });
    return true;
  }
}

const linkColumns = { id: text, created_at: text, person_id: text, secret_hash: blob, expires_at: text };

export type PersonLinkRow = RowOf<typeof linkColumns>;

/** One-time links of people; only the hashes of their secrets are stored. */
export class PersonLinks extends tableOf('person_links', linkColumns) {
  /** Deletes the links of a person, inside a transaction. */
  deleteOf(personId: string): void {
    for (const { id } of this.where('person_id = ?', [personId])) this.delete(id);
  }
}
