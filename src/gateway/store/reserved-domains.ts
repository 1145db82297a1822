import { coveringNames } from '../endpoints/domain-names.ts';
import { ManagedDomains, managedColumns } from './managed-domains.ts';
import type { Database } from './sql/database.ts';
import { annotatedColumns, nullable, type RowOf, Table, text } from './sql/table.ts';

const domainColumns = {
  ...managedColumns,
  description: nullable(text),
  metadata: nullable(text),
  http_endpoint_configuration_id: nullable(text),
  https_endpoint_configuration_id: nullable(text),
};

export type ReservedDomainRow = RowOf<typeof domainColumns>;

/** Reserved domains: hostnames that only this account's agents may bind. */
export class ReservedDomains extends ManagedDomains<typeof domainColumns> {
  constructor(database: Database) {
    super(database, 'reserved_domains', domainColumns);
  }

  /**
   * The reserved domain that covers a hostname: its own, else the closest wildcard above it. Only an equal or wider wildcard
   * covers a wildcard.
   */
  covering(host: string): ReservedDomainRow | null {
    return this.#covering(host)[0] ?? null;
  }

  /** Whether a name directly below a site that is reserved, or below which all are, ends in `-<name>`. */
  hasEnding(site: string, name: string): boolean {
    const end = `-${name}.${site}`;
    return this.where('substr(domain, -length(?)) = ?', [end, end]).some(({ domain }) => {
      const label = domain.replace(/^\*\./, '').slice(0, -end.length);
      return !label.includes('.');
    });
  }

  /** The id of a hostname's certificate: that of the closest reserved domain that covers it and has one. */
  certificateFor(host: string): string | null {
    return this.#covering(host).find((row) => row.certificate_id !== null)?.certificate_id ?? null;
  }

  /** All reserved domains that cover a hostname, the closest first. */
  #covering(host: string): ReservedDomainRow[] {
    const names = coveringNames(host);
    const rows = this.where('domain IN (SELECT value FROM json_each(?))', [JSON.stringify(names)]);
    const order = (row: ReservedDomainRow) => names.indexOf(row.domain);
    return rows.sort((a, b) => order(a) - order(b));
  }
}

const configurationColumns = {
  ...annotatedColumns,
  type: text,
};

export type EndpointConfigurationRow = RowOf<typeof configurationColumns>;

/** Endpoint configurations, which reserved domains refer to. */
export const endpointConfigurations = (database: Database) =>
  new Table(database, 'endpoint_configurations', configurationColumns);
