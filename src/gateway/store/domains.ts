import type { ReservedDomainFilters } from '../../management/resources/reserved-domain.ts';
import { coveringNames } from '../endpoints/domain-names.ts';
import type { Database } from './sql/database.ts';
import { chosenRows, conditionsOf, type ListedBy, type ListPart } from './sql/list-choice.ts';
import { json, nullable, type RowOf, Table, text } from './sql/table.ts';

export interface StoredCertificatePolicy {
  authority: string;
  private_key_type: 'rsa' | 'ecdsa';
}

/** The job that issues or renews a certificate. */
export interface ProvisioningJob {
  error_code: 'DNS_ERROR' | 'INTERNAL_ERROR' | null;
  msg: string;
  started_at: string;
  retries_at: string | null;
  attempts: number;
  /** Why the certificate in use is revoked once there is another one; missing: it is not. */
  revokes?: string;
  /** RFC 3339, when it is revoked though there is no other one; missing: it waits. */
  revokes_by?: string;
  /** The order under way at the CA; missing before it is placed. Its private key is encrypted, in base64. */
  order?: { authority: string; url: string; key: string };
}

/** Says that a revocation waits; null: none does. */
export function waitingRevocation(
  domain: string,
  { revokes, revokes_by }: { revokes?: string | null | undefined; revokes_by?: string | null | undefined },
): string | null {
  if (!revokes) return null;
  const when = revokes_by ? `, at ${revokes_by} at the latest` : '';
  return `it is revoked once there is another one${when}: device-agent gateway certificates revoke '${domain}' --now does not wait`;
}

export const CERTIFICATE_STATES = ['ready', 'uploaded', 'provisioning', 'dns_error', 'internal_error', 'none'] as const;
type CertificateState = (typeof CERTIFICATE_STATES)[number];

/** A failing renewal counts as failing even while the current certificate still serves. */
const STATE = `CASE
  WHEN job IS NOT NULL THEN COALESCE(LOWER(job ->> 'error_code'), 'provisioning')
  WHEN certificate_id IS NULL THEN 'none'
  WHEN policy IS NULL THEN 'uploaded'
  ELSE 'ready' END`;

const managedColumns = {
  id: text,
  created_at: text,
  domain: text,
  certificate_id: nullable(text),
  policy: nullable(json<StoredCertificatePolicy>()),
  renews_at: nullable(text),
  job: nullable(json<ProvisioningJob>()),
  due_at: nullable(text),
};

export type ManagedDomainRow = RowOf<typeof managedColumns>;

export interface TroubledName {
  readonly domain: string;
  /** Why its last order has failed; null: it has not. */
  readonly msg: string | null;
  /** As in {@link ProvisioningJob}; null: the certificate in use is not revoked. */
  readonly revokes: string | null;
  readonly revokes_by: string | null;
  /** Validity of the certificate in use; null: there is none. */
  readonly begins: string | null;
  readonly ends: string | null;
}

/** A certificate that is still in use so long before its end was not renewed: that is due after three quarters of its lifetime at the latest. */
export const LATE_MS = 14 * 86_400_000;
const LATE_SHARE = 1 / 6;

/** Whether a certificate should have been replaced by now. @param begins null: unknown */
export function endsSoon(begins: string | null, ends: string | null, now: number): boolean {
  if (ends === null) return false;
  const end = Date.parse(ends);
  const lifetime = begins === null ? Number.POSITIVE_INFINITY : end - Date.parse(begins);
  return end - now < Math.min(LATE_MS, lifetime * LATE_SHARE);
}

/** A table of names with their certificates and provisioning jobs. */
class ManagedDomains<Columns extends typeof managedColumns> extends Table<Columns> {
  /** The number of names in each state; states without names are left out. */
  certificateStates(): { state: CertificateState; names: number }[] {
    return this.database.all(`SELECT ${STATE} AS state, COUNT(*) AS names FROM ${this.name} GROUP BY state`);
  }

  /** The earliest expiry of the certificates in use. */
  nearestExpiry(): string | null {
    const sql = `SELECT MIN(facts ->> 'not_after') AS at FROM tls_certificates
      WHERE id IN (SELECT certificate_id FROM ${this.name})`;
    return this.database.get<{ at: string | null }>(sql)?.at ?? null;
  }

  /** Names whose certificate is not issued or renewed, or ends before a time. */
  troubled(before: string): TroubledName[] {
    return this.database.all(
      `SELECT domain, job ->> 'msg' AS msg, job ->> 'revokes' AS revokes, job ->> 'revokes_by' AS revokes_by,
         facts ->> 'not_before' AS begins, facts ->> 'not_after' AS ends
       FROM ${this.name} AS names LEFT JOIN tls_certificates AS used ON used.id = names.certificate_id
       WHERE job ->> 'error_code' IS NOT NULL OR facts ->> 'not_after' < ? ORDER BY ends IS NULL, ends, domain`,
      [before],
    );
  }

  byName(domain: string): RowOf<Columns> | null {
    return this.where('domain = ?', [domain])[0] ?? null;
  }

  /** The names that use a certificate. */
  using(certificateId: string): string[] {
    return this.database
      .all<{ domain: string }>(`SELECT domain FROM ${this.name} WHERE certificate_id = ?`, [certificateId])
      .map(({ domain }) => domain);
  }

  /** All names with an automatic certificate, by id. */
  managed(): RowOf<Columns>[] {
    return this.where('policy IS NOT NULL', []);
  }

  /** Names whose certificates are revoked by the given time, though they have no other ones. */
  overdue(now: string): RowOf<Columns>[] {
    return this.where("job ->> 'revokes_by' <= ?", [now]);
  }

  /** Names that are due by the given time, the oldest first. */
  due(now: string, limit: number): RowOf<Columns>[] {
    return this.where('due_at <= ? ORDER BY due_at LIMIT ?', [now, limit]);
  }
}

/** The gateway's own names with certificates of a public CA, issued or ordered. */
export class OwnDomains extends ManagedDomains<typeof managedColumns> {
  constructor(database: Database) {
    super(database, 'own_domains', managedColumns);
  }

  /** The id of a hostname's certificate: its own, else that of the wildcard directly above it. */
  certificateFor(host: string): string | null {
    const wildcard = host.replace(/^[^.]*/, '*');
    const rows = this.where('domain IN (?, ?) AND certificate_id IS NOT NULL', [host, wildcard]);
    const closest = rows.find(({ domain }) => domain === host) ?? rows[0];
    return closest?.certificate_id ?? null;
  }
}

const domainColumns = {
  ...managedColumns,
  description: nullable(text),
  metadata: nullable(text),
  http_endpoint_configuration_id: nullable(text),
  https_endpoint_configuration_id: nullable(text),
};

export type ReservedDomainRow = RowOf<typeof domainColumns>;

const LISTED_BY: ListedBy = {
  searched: ['id', 'domain', 'description', 'metadata'],
  sorted: {
    domain: 'domain',
    description: 'lower(description)',
    state: `CASE ${STATE} WHEN 'dns_error' THEN '0' WHEN 'internal_error' THEN '1' ELSE ${STATE} END`,
  },
};

/** Reserved domains: hostnames that only this account's agents may bind. */
export class ReservedDomains extends ManagedDomains<typeof domainColumns> {
  constructor(database: Database) {
    super(database, 'reserved_domains', domainColumns);
  }

  /** A page of those for which all filters hold. */
  chosen(before: string | null, limit: number, filters: ReservedDomainFilters): ListPart<ReservedDomainRow> {
    const further = conditionsOf(filters, {
      state: (state) => (state === 'failing' ? ["job ->> 'error_code' IS NOT NULL"] : [`${STATE} = ?`, state]),
    });
    return chosenRows(this, LISTED_BY, filters, further, { before, limit });
  }

  /** The reserved domain that covers a hostname: its own, else the closest wildcard; a wildcard's is equal or wider. */
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
