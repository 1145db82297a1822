import type { Database } from './sql/database.ts';
import { annotatedColumns, json, type RowOf, Table, text } from './sql/table.ts';

/** Facts about a CA certificate, read when it is stored. */
export interface AuthorityFacts {
  subject_common_name: string;
  not_before: string;
  not_after: string;
  key_usages: string[];
  extended_key_usages: string[];
}

const columns = {
  ...annotatedColumns,
  ca_pem: text,
  facts: json<AuthorityFacts>(),
};

export type CertificateAuthorityRow = RowOf<typeof columns>;

/** CA certificates that TLS edges verify client certificates with. */
export const certificateAuthorities = (database: Database) => new Table(database, 'certificate_authorities', columns);
