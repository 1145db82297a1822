import { z } from 'zod';
import { refused } from './refusal.ts';
import {
  ANNOTATIONS_ANSWER,
  annotations,
  body,
  COMMON_ANSWER,
  defineResource,
  listFilters,
  orNull,
  text,
  UTC,
} from './resource.ts';

const NO_CERTIFICATE = 1922;
const NO_KEY = 1901;
const CHAIN = 'The leaf certificate as PEM, then the intermediates.';

/** What the schema of a certificate says beside its names. */
const VALIDITY = {
  not_before: z.string().describe(`From when it is valid. ${UTC}`),
  not_after: z.string().describe(`Until when it is valid. ${UTC}`),
  key_usages: z
    .array(z.string())
    .default([])
    .describe('What its key may be used for, for example `digital_signature`.'),
  extended_key_usages: z
    .array(z.string())
    .default([])
    .describe('The purposes of the certificate, for example `server_auth`.'),
};
/** A part of a certificate's subject or issuer. */
const nameOf = (what: string) => z.string().default('').describe(`${what}; empty when the certificate has none.`);

/** The content of the two PEM texts is checked where certificates are parsed. */
export const TlsCertificateCreate = body({
  ...annotations(),
  certificate_pem: z
    .string(refused(NO_CERTIFICATE, 'is missing or not a string'))
    .min(1, refused(NO_CERTIFICATE, 'is empty'))
    .describe(CHAIN),
  private_key_pem: z
    .string(refused(NO_KEY, 'is missing or not a string'))
    .min(1, refused(NO_KEY, 'is empty'))
    .describe('The private key of the leaf certificate as PEM, unencrypted. The API never returns it.'),
});
export type TlsCertificateCreate = z.input<typeof TlsCertificateCreate>;

export const TlsCertificateUpdate = body(annotations());
export type TlsCertificateUpdate = z.input<typeof TlsCertificateUpdate>;

export const TlsCertificate = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    certificate_pem: z.string().describe(CHAIN),
    subject_common_name: nameOf('The common name of the subject'),
    subject_alternative_names: z
      .object({
        dns_names: z.array(z.string()).default([]).describe('Hostnames and wildcards.'),
        ips: z.array(z.string()).default([]).describe('IP addresses.'),
      })
      .describe('The names for which the certificate is valid.'),
    issued_at: orNull(z.string()).describe(`When an automatic certificate was issued; null for uploaded ones. ${UTC}`),
    ...VALIDITY,
    private_key_type: z.string().describe('`rsa` or `ecdsa`.'),
    issuer_common_name: nameOf('The common name of the CA that issued it'),
    serial_number: z.string().describe('The serial number, in hexadecimal digits.'),
    subject_organization: nameOf('The organization (O) of the subject'),
    subject_organizational_unit: nameOf('The organizational unit (OU) of the subject'),
    subject_locality: nameOf('The locality (L) of the subject'),
    subject_province: nameOf('The state or province (ST) of the subject'),
    subject_country: nameOf('The country (C) of the subject'),
  })
  .describe('A certificate, uploaded or issued automatically. The API never returns its private key.');
export type TlsCertificate = z.output<typeof TlsCertificate>;

export const TlsCertificateFilters = listFilters(
  'id, names, subject, issuer, description or metadata',
  ['subject_common_name', 'not_after', 'description'],
  {},
);

export const tlsCertificates = defineResource({
  name: 'TLS certificate',
  label: 'Certificate',
  path: '/tls_certificates',
  idPrefix: 'cert_',
  create: TlsCertificateCreate,
  update: TlsCertificateUpdate,
  answer: TlsCertificate,
  filters: TlsCertificateFilters,
});

const NOTHING_SENT = 1919;
const CA = 'Exactly one certificate as PEM, of a CA.';

/** The content of the PEM is checked where certificates are parsed. */
export const CertificateAuthorityCreate = body({
  ...annotations(),
  ca_pem: z
    .string(refused(NOTHING_SENT, 'is missing or not a string'))
    .min(1, refused(NOTHING_SENT, 'is empty'))
    .pipe(text(64 * 1024, 1921))
    .describe(CA),
});
export type CertificateAuthorityCreate = z.input<typeof CertificateAuthorityCreate>;

export const CertificateAuthorityUpdate = body(annotations());
export type CertificateAuthorityUpdate = z.input<typeof CertificateAuthorityUpdate>;

export const CertificateAuthority = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    ca_pem: z.string().describe(CA),
    subject_common_name: nameOf('The common name of the CA'),
    ...VALIDITY,
  })
  .describe('A CA that verifies client certificates at an edge.');
export type CertificateAuthority = z.output<typeof CertificateAuthority>;

export const certificateAuthorities = defineResource({
  name: 'certificate authority',
  label: 'Client CA',
  path: '/certificate_authorities',
  idPrefix: 'ca_',
  create: CertificateAuthorityCreate,
  update: CertificateAuthorityUpdate,
  answer: CertificateAuthority,
});
