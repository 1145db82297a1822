import { annotatedColumns, integer, nullable, type RowOf, tableOf, text } from './sql/table.ts';

const columns = { ...annotatedColumns, port: integer, owner_id: nullable(text) };

export type ReservedAddrRow = RowOf<typeof columns>;

/** Ports of tcp endpoints that are given only to those who ask for them. */
export class ReservedAddrs extends tableOf('reserved_addrs', columns) {
  byPort(port: number): ReservedAddrRow | null {
    return this.where('port = ?', [port])[0] ?? null;
  }
}
