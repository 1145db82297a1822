import type { Database } from './sql/database.ts';
import { annotatedColumns, integer, nullable, type RowOf, Table, text } from './sql/table.ts';

const columns = { ...annotatedColumns, port: integer, owner_id: nullable(text) };

export type ReservedAddrRow = RowOf<typeof columns>;

/** Ports of tcp endpoints that are given only to those who ask for them. */
export class ReservedAddrs extends Table<typeof columns> {
  constructor(database: Database) {
    super(database, 'reserved_addrs', columns);
  }

  byPort(port: number): ReservedAddrRow | null {
    return this.where('port = ?', [port])[0] ?? null;
  }
}
