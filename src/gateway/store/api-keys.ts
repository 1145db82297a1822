import type { Database } from './database.ts';
import { blob, nullable, type RowOf, Table, text } from './table.ts';

const columns = {
  id: text,
  created_at: text,
  description: nullable(text),
  metadata: nullable(text),
  owner_id: nullable(text),
  secret_hash: blob,
};

export type ApiKeyRow = RowOf<typeof columns>;

/** API keys; only their hashes are stored. */
export const apiKeys = (database: Database) => new Table(database, 'api_keys', columns);
