import type { PortRange } from '../../lib/network/port-range.ts';
import type { Database } from './sql/database.ts';
import { annotatedColumns, blob, flag, integer, json, nullable, type RowOf, Table, text } from './sql/table.ts';

const columns = {
  ...annotatedColumns,
  site: text,
  owner_id: text,
  secret_hash: blob,
  max_uses: nullable(integer),
  uses: integer,
  expires_at: nullable(text),
  revoked_at: nullable(text),
  needs_approval: flag,
  tcp_ports: nullable(json<PortRange>()),
  own_names_only: flag,
  labels: json<Record<string, string>>(),
};

export type EnrolmentKeyRow = RowOf<typeof columns>;

/** Keys with which devices join a site; only the hashes of their secrets are stored. */
export class EnrolmentKeys extends Table<typeof columns> {
  constructor(database: Database) {
    super(database, 'enrolment_keys', columns);
  }

  /** The newest key of a site; null when it has none. */
  newestOf(site: string): EnrolmentKeyRow | null {
    return this.where('site = ? ORDER BY id DESC LIMIT 1', [site])[0] ?? null;
  }
}
