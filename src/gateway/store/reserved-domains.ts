import type { Database } from './database.ts';
import { json, nullable, type RowOf, Table, text } from './table.ts';

export interface CertificatePolicy {
  authority: string;
  private_key_type: 'rsa' | 'ecdsa';
}

/** A certificate being issued or renewed. */
export interface ProvisioningJob {
  error_code: 'DNS_ERROR' | 'INTERNAL_ERROR' | null;
  msg: string;
  started_at: string;
  retries_at: string | null;
  /** Failures so far. */
  attempts: number;
}

const columns = {
  id: text,
  created_at: text,
  description: nullable(text),
  metadata: nullable(text),
  domain: text,
  certificate_id: nullable(text),
  http_endpoint_configuration_id: nullable(text),
  https_endpoint_configuration_id: nullable(text),
  policy: nullable(json<CertificatePolicy>()),
  renews_at: nullable(text),
  job: nullable(json<ProvisioningJob>()),
  due_at: nullable(text),
};

export type ReservedDomainRow = RowOf<typeof columns>;

/** Hostnames held for the account. */
export class ReservedDomains extends Table<typeof columns> {
  constructor(database: Database) {
    super(database, 'reserved_domains', columns);
  }

  byName(domain: string): ReservedDomainRow | null {
    return this.where('domain = ?', [domain])[0] ?? null;
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

  /** Domains whose certificate has to be looked at by the given time, the longest waiting first. */
  due(now: string, limit: number): ReservedDomainRow[] {
    return this.where('due_at <= ? ORDER BY due_at LIMIT ?', [now, limit]);
  }
}

/** The host itself and every wildcard above it, closest first. */
function coveringNames(host: string): string[] {
  const labels = host.split('.');
  const above = labels.map((_, depth) => `*.${labels.slice(depth + 1).join('.')}`).slice(0, -1);
  return [host, ...above.filter((name) => name !== host)];
}
