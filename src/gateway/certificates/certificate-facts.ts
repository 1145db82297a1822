import type { KeyObject, X509Certificate } from 'node:crypto';
import * as x509 from '../../lib/x509-library.ts';
import type { AuthorityFacts, CertificateFacts } from '../store/certificates.ts';
import { timestamp } from '../store/store.ts';

/** Bits of RFC 5280, section 4.2.1.3, lowest first. */
const KEY_USAGES = [
  'digital_signature',
  'content_commitment',
  'key_encipherment',
  'data_encipherment',
  'key_agreement',
  'cert_sign',
  'crl_sign',
  'encipher_only',
  'decipher_only',
];

/** RFC 5280, section 4.2.1.12. */
const EXTENDED_KEY_USAGES: Readonly<Record<string, string>> = {
  '2.5.29.37.0': 'any',
  '1.3.6.1.5.5.7.3.1': 'server_auth',
  '1.3.6.1.5.5.7.3.2': 'client_auth',
  '1.3.6.1.5.5.7.3.3': 'code_signing',
  '1.3.6.1.5.5.7.3.4': 'email_protection',
  '1.3.6.1.5.5.7.3.8': 'time_stamping',
  '1.3.6.1.5.5.7.3.9': 'ocsp_signing',
};

/** Reads the facts about a CA certificate that the API shows. */
export function authorityFacts(certificate: X509Certificate): AuthorityFacts {
  const parsed = new x509.X509Certificate(certificate.raw);
  return {
    subject_common_name: nameField(parsed.subjectName, 'CN'),
    not_before: timestamp(parsed.notBefore.getTime()),
    not_after: timestamp(parsed.notAfter.getTime()),
    key_usages: keyUsages(parsed),
    extended_key_usages: extendedKeyUsages(parsed),
  };
}

/** Reads the facts about a server's certificate that the API shows. */
export function certificateFacts(certificate: X509Certificate, privateKey: KeyObject): CertificateFacts {
  const parsed = new x509.X509Certificate(certificate.raw);
  const subject = parsed.subjectName;
  return {
    ...authorityFacts(certificate),
    issuer_common_name: nameField(parsed.issuerName, 'CN'),
    subject_alternative_names: alternativeNames(parsed),
    private_key_type: privateKey.asymmetricKeyType === 'ec' ? 'ecdsa' : String(privateKey.asymmetricKeyType),
    serial_number: certificate.serialNumber.toLowerCase(),
    subject_organization: nameField(subject, 'O'),
    subject_organizational_unit: nameField(subject, 'OU'),
    subject_locality: nameField(subject, 'L'),
    subject_province: nameField(subject, 'ST'),
    subject_country: nameField(subject, 'C'),
  };
}

function nameField(name: x509.Name, field: string): string {
  return name.getField(field)[0] ?? '';
}

function alternativeNames(certificate: x509.X509Certificate): CertificateFacts['subject_alternative_names'] {
  const names = certificate.getExtension(x509.SubjectAlternativeNameExtension)?.names.items ?? [];
  const ofType = (type: x509.GeneralNameType) => names.filter((name) => name.type === type).map(({ value }) => value);
  return { dns_names: ofType('dns'), ips: ofType('ip') };
}

function keyUsages(certificate: x509.X509Certificate): string[] {
  const usages = certificate.getExtension(x509.KeyUsagesExtension)?.usages ?? 0;
  return KEY_USAGES.filter((_, bit) => (usages & (1 << bit)) !== 0);
}

function extendedKeyUsages(certificate: x509.X509Certificate): string[] {
  const usages = certificate.getExtension(x509.ExtendedKeyUsageExtension)?.usages ?? [];
  return usages.map((oid) => EXTENDED_KEY_USAGES[String(oid)] ?? String(oid));
}
