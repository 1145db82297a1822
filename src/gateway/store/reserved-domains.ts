import { coveringNames } from '../endpoints/domain-names.ts';
import type { Database } from './database.ts';
import { ManagedDomains, managedColumns } from './managed-domains.ts';
import { nullable, type RowOf, text } from './table.ts';

const columns = {
  ...managedColumns,
  description: nullable(text),
  metadata: nullable(text),
  http_endpoint_configuration_id: nullable(text),
  https_endpoint_configuration_id: nullable(text),
};

export type ReservedDomainRow = RowOf<typeof columns>;

/** Hostnames held for the account. */
export class ReservedDomains extends ManagedDomains<typeof columns> {
  constructor(database: Database) {
    super(database, 'reserved_domains', columns);
  }

  /**
   * The reservation that a hostname falls under: its own, else the closest wildcard above it.
   *
   * @param host lower case; may itself be a wildcard, which only an equal or wider wildcard covers
   */
  covering(host: string): ReservedDomainRow | null {
    return this.#covering(host)[0] ?? null;
  }

  /**
   * The certificate to serve a hostname with: of the closest reservation that it falls under and that has one.
   *
   * @param host lower case
   * @returns the certificate's id
   */
  certificateFor(host: string): string | null {
    return this.#covering(host).find((row) => row.certificate_id !== null)?.certificate_id ?? null;
  }

  /** All reservations that a hostname falls under, the closest first. */
  #covering(host: string): ReservedDomainRow[] {
    const names = coveringNames(host);
    const rows = this.where('domain IN (SELECT value FROM json_each(?))', [JSON.stringify(names)]);
    const order = (row: ReservedDomainRow) => names.indexOf(row.domain);
    return rows.sort((a, b) => order(a) - order(b));
  }
}
