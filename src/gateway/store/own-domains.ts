import { ManagedDomains, managedColumns } from './managed-domains.ts';
import type { Database } from './sql/database.ts';

/** The gateway's own names with certificates of a public CA, issued or ordered. */
export class OwnDomains extends ManagedDomains<typeof managedColumns> {
  constructor(database: Database) {
    super(database, 'own_domains', managedColumns);
  }

  /**
   * The certificate of a hostname: its own, else that of the wildcard directly above it.
   *
   * @param host lower case
   * @returns the certificate's id
   */
  certificateFor(host: string): string | null {
    const wildcard = host.replace(/^[^.]*/, '*');
    const rows = this.where('domain IN (?, ?) AND certificate_id IS NOT NULL', [host, wildcard]);
    const closest = rows.find(({ domain }) => domain === host) ?? rows[0];
    return closest?.certificate_id ?? null;
  }
}
