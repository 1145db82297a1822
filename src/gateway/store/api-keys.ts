import type { Database } from './sql/database.ts';
import { annotatedColumns, blob, nullable, type RowOf, Table, text } from './sql/table.ts';

const columns = {
  ...annotatedColumns,
  owner_id: nullable(text),
  secret_hash: blob,
};

export type ApiKeyRow = RowOf<typeof columns>;

/** API keys; only their hashes are stored. */
export const apiKeys = (database: Database) => new Table(database, 'api_keys', columns);
