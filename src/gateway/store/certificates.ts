import type { SecretsBox } from '../../lib/secrets-box.ts';
import type { Database } from './sql/database.ts';
import type { ListedBy } from './sql/list-choice.ts';
import { annotatedColumns, blob, json, nullable, type RowOf, Table, text } from './sql/table.ts';

export interface AuthorityFacts {
  subject_common_name: string;
  not_before: string;
  not_after: string;
  key_usages: string[];
  extended_key_usages: string[];
}

const authorityColumns = {
  ...annotatedColumns,
  ca_pem: text,
  facts: json<AuthorityFacts>(),
};

export type CertificateAuthorityRow = RowOf<typeof authorityColumns>;

/** CA certificates that TLS edges verify client certificates with. */
export const certificateAuthoritiesTable = (database: Database) =>
  new Table(database, 'certificate_authorities', authorityColumns);

export interface CertificateFacts extends AuthorityFacts {
  issuer_common_name: string;
  subject_alternative_names: { dns_names: string[]; ips: string[] };
  private_key_type: string;
  serial_number: string;
  subject_organization: string;
  subject_organizational_unit: string;
  subject_locality: string;
  subject_province: string;
  subject_country: string;
}

const certificateColumns = {
  ...annotatedColumns,
  certificate_pem: text,
  private_key: blob,
  facts: json<CertificateFacts>(),
  // Set when a management policy issued it, null when it was uploaded.
  issued_at: nullable(text),
};

export const CERTIFICATES_LISTED_BY: ListedBy = {
  searched: ['id', 'description', 'metadata', 'facts'],
  sorted: {
    subject_common_name: "lower(facts ->> 'subject_common_name')",
    not_after: "facts ->> 'not_after'",
    description: 'lower(description)',
  },
};

export type TlsCertificateRow = RowOf<typeof certificateColumns>;

/** Certificates with their private keys, which are encrypted at rest. */
export class TlsCertificates extends Table<typeof certificateColumns> {
  readonly #box: SecretsBox;

  constructor(database: Database, box: SecretsBox) {
    super(database, 'tls_certificates', certificateColumns);
    this.#box = box;
  }

  insertWithKey(row: Omit<TlsCertificateRow, 'private_key'>, privateKeyPem: string): TlsCertificateRow {
    const full = { ...row, private_key: this.seal(privateKeyPem, row.id) };
    this.insert(full);
    return full;
  }

  seal(privateKeyPem: string, id: string): Buffer {
    return this.#box.seal(privateKeyPem, id);
  }

  /** Ids of those whose private key was encrypted with another encryption key. */
  sealedOtherwise(): string[] {
    const rows = this.database.all<{ id: string; private_key: ArrayBuffer }>(
      'SELECT id, private_key FROM tls_certificates',
    );
    return rows.flatMap(({ id, private_key }) => (this.#box.opens(Buffer.from(private_key), id) ? [] : id));
  }

  /** Certificate chain and private key, both PEM, for serving; null when there is no such certificate. */
  keyPair(id: string): { certificatePem: string; privateKeyPem: string } | null {
    const row = this.get(id);
    return row && { certificatePem: row.certificate_pem, privateKeyPem: this.#box.open(row.private_key, id) };
  }
}
