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

/** What can be said of the certificate of a name. */
export const CERTIFICATE_STATES = ['ready', 'uploaded', 'provisioning', 'dns_error', 'internal_error', 'none'] as const;
export type CertificateState = (typeof CERTIFICATE_STATES)[number];

/** A failing renewal shows, though the certificate that it is to replace still serves. */
const STATE = `CASE
  WHEN job IS NOT NULL THEN COALESCE(LOWER(job ->> 'error_code'), 'provisioning')
  WHEN certificate_id IS NULL THEN 'none'
  WHEN policy IS NULL THEN 'uploaded'
  ELSE 'ready' END`;

/** What every name has whose certificate can be obtained automatically. */
export const managedColumns = {
  id: text,
  created_at: text,
  domain: text,
  certificate_id: nullable(text),
  policy: nullable(json<CertificatePolicy>()),
  renews_at: nullable(text),
  job: nullable(json<ProvisioningJob>()),
  due_at: nullable(text),
};

export type ManagedDomainRow = RowOf<typeof managedColumns>;

/** Names, each with its certificate and with what has to be done for that. */
export class ManagedDomains<Columns extends typeof managedColumns> extends Table<Columns> {
  readonly #states: () => { state: CertificateState; names: number }[];
  readonly #nearestExpiry: () => string | null;

  constructor(database: Database, name: string, columns: Columns) {
    super(database, name, columns);
    const states = `SELECT ${STATE} AS state, COUNT(*) AS names FROM ${name} GROUP BY state`;
    this.#states = () => database.all(states);
    const expiry = `SELECT MIN(facts ->> 'not_after') AS at FROM tls_certificates
      WHERE id IN (SELECT certificate_id FROM ${name})`;
    this.#nearestExpiry = () => database.get<{ at: string | null }>(expiry)?.at ?? null;
  }

  /** How many names there are in each state; those that have none are left out. */
  certificateStates(): { state: CertificateState; names: number }[] {
    return this.#states();
  }

  /** When the first of the certificates in use ends. */
  nearestExpiry(): string | null {
    return this.#nearestExpiry();
  }

  byName(domain: string): RowOf<Columns> | null {
    return this.where('domain = ?', [domain])[0] ?? null;
  }

  /** All names whose certificate is obtained automatically, in order of their ids. */
  managed(): RowOf<Columns>[] {
    return this.where('policy IS NOT NULL', []);
  }

  /** Names whose certificate has to be looked at by the given time, the longest waiting first. */
  due(now: string, limit: number): RowOf<Columns>[] {
    return this.where('due_at <= ? ORDER BY due_at LIMIT ?', [now, limit]);
  }
}
