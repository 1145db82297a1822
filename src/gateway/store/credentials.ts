import type { Database } from './sql/database.ts';
import { annotatedColumns, blob, json, nullable, type RowOf, Table, text } from './sql/table.ts';

const columns = {
  ...annotatedColumns,
  owner_id: nullable(text),
  acl: json<string[]>(),
  secret_hash: blob,
};

export type CredentialRow = RowOf<typeof columns>;

/** Authtokens; only their hashes are stored. */
export class Credentials extends Table<typeof columns> {
  constructor(database: Database) {
    super(database, 'credentials', columns);
  }

  /** The identifiers of all authtokens of a bot user. */
  idsOfOwner(ownerId: string): string[] {
    return this.where('owner_id = ?', [ownerId]).map((row) => row.id);
  }
}
