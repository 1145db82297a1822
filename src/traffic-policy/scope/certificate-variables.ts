import { type CelInput, celList, celMap } from '@bufbuild/cel';
import { timestampFromDate } from '@bufbuild/protobuf/wkt';
import type * as X509 from '../../lib/x509-library.ts';

/** Loaded on demand: few policies need it. */
let library: typeof X509 | null = null;

/** Wait for it before the first call of {@link certificateVariables}. */
export async function loadCertificateLibrary(): Promise<void> {
  library ??= await import('../../lib/x509-library.ts');
}

function x509(): typeof X509 {
  if (library === null) throw new Error('the certificate library is not loaded');
  return library;
}

const NAME_FIELDS: Readonly<Record<string, string>> = {
  country: 'C',
  locality: 'L',
  organization: 'O',
  organizational_unit: 'OU',
  postal_code: '2.5.4.17',
  province: 'ST',
  street_address: '2.5.4.9',
};

const ALTERNATIVE_NAMES: Readonly<Record<string, string>> = {
  dns_names: 'dns',
  email_addresses: 'email',
  ip_addresses: 'ip',
  uris: 'url',
};

/** The names below `conn.tls.client.` and `conn.tls.server.`, save for `pem`. */
export const CERTIFICATE_FIELDS: readonly string[] = [
  ...['subject', 'issuer'].flatMap((name) => [
    name,
    `${name}.common_name`,
    ...Object.keys(NAME_FIELDS).map((field) => `${name}.${field}`),
  ]),
  'san',
  ...Object.keys(ALTERNATIVE_NAMES).map((field) => `san.${field}`),
  'serial_number',
  'signature_algorithm',
  'validity.not_before',
  'validity.not_after',
  'extensions',
  'pem',
];

export function certificateVariables(der: Uint8Array): Record<string, CelInput> {
  const certificate = new (x509().X509Certificate)(new Uint8Array(der));
  return {
    ...nameVariables('subject', certificate.subjectName),
    ...nameVariables('issuer', certificate.issuerName),
    ...alternativeNames(certificate),
    serial_number: certificate.serialNumber,
    signature_algorithm: signatureAlgorithm(certificate),
    'validity.not_before': timestampFromDate(certificate.notBefore),
    'validity.not_after': timestampFromDate(certificate.notAfter),
    extensions: celList(
      certificate.extensions.map(({ type, critical, value }) =>
        celMap(
          new Map<string, CelInput>([
            ['id', type],
            ['critical', critical],
            ['value', new Uint8Array(value)],
          ]),
        ),
      ),
    ),
    pem: certificate.toString('pem'),
  };
}

function nameVariables(prefix: string, name: X509.Name): Record<string, CelInput> {
  const variables: Record<string, CelInput> = {
    // RFC 2253 starts with the most specific part; certificates end with it.
    [prefix]: new (x509().Name)(name.toJSON().reverse()).toString(),
    [`${prefix}.common_name`]: name.getField('CN')[0] ?? '',
  };
  for (const [field, short] of Object.entries(NAME_FIELDS)) {
    variables[`${prefix}.${field}`] = celList(name.getField(short));
  }
  return variables;
}

function alternativeNames(certificate: X509.X509Certificate): Record<string, CelInput> {
  const extension = certificate.getExtension(x509().SubjectAlternativeNameExtension);
  const names: X509.GeneralName[] = extension?.names.items.slice() ?? [];
  const variables: Record<string, CelInput> = { san: names.map(({ type, value }) => `${type}:${value}`).join(', ') };
  for (const [field, type] of Object.entries(ALTERNATIVE_NAMES)) {
    variables[`san.${field}`] = celList(names.filter((name) => name.type === type).map(({ value }) => value));
  }
  return variables;
}

/** For example `ECDSA SHA-256`. */
function signatureAlgorithm(certificate: X509.X509Certificate): string {
  const { signatureAlgorithm: algorithm } = certificate;
  const { hash } = algorithm;
  return 'name' in algorithm ? `${String(algorithm.name)} ${typeof hash === 'string' ? hash : hash.name}` : '';
}
