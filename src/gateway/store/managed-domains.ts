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
