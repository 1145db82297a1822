import { BoundedMap } from '../../lib/bounded-map.ts';
import { ChangeWatch } from './sql/change-watch.ts';
import type { Database } from './sql/database.ts';
import { blob, integer, json, nullable, type RowOf, Table, tableOf, text } from './sql/table.ts';

/** People whose rows are kept in memory. */
const MAX_KNOWN = 10_000;

const personColumns = {
  id: text,
  created_at: text,
  email: text,
  name: text,
  groups: json<string[]>(),
  password_hash: blob,
  password_set_at: nullable(text),
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

export class Passkeys extends tableOf('passkeys', passkeyColumns) {
  byCredential(credentialId: string): PasskeyRow | null {
    return this.where('credential_id = ?', [credentialId])[0] ?? null;
  }

  ofPerson(personId: string): PasskeyRow[] {
    return this.where('person_id = ?', [personId]);
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
