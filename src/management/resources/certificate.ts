import { z } from 'zod';
import { refused } from './refusal.ts';
import { ANNOTATIONS_ANSWER, annotations, body, COMMON_ANSWER, defineResource, orNull, text } from './resource.ts';

const NO_CERTIFICATE = 1922;
const NO_KEY = 1901;

/** The content of the two PEM texts is checked where certificates are parsed. */
export const TlsCertificateCreate = body({
  ...annotations(),
  certificate_pem: z
    .string(refused(NO_CERTIFICATE, 'is missing or not a string'))
    .min(1, refused(NO_CERTIFICATE, 'is empty')),
  private_key_pem: z.string(refused(NO_KEY, 'is missing or not a string')).min(1, refused(NO_KEY, 'is empty')),
});
export interface TlsCertificateCreate extends z.input<typeof TlsCertificateCreate> {
  /** The leaf certificate, then the intermediates. */
  certificate_pem: string;
  /** Unencrypted. The API never returns it. */
  private_key_pem: string;
}

export const TlsCertificateUpdate = body(annotations());
export interface TlsCertificateUpdate extends z.input<typeof TlsCertificateUpdate> {}

/** A certificate, uploaded or issued automatically. The API never returns its private key. */
export const TlsCertificate = z.object({
  ...COMMON_ANSWER,
  ...ANNOTATIONS_ANSWER,
  certificate_pem: z.string(),
  subject_common_name: z.string().default(''),
  subject_alternative_names: z.object({
    dns_names: z.array(z.string()).default([]),
    ips: z.array(z.string()).default([]),
  }),
  issued_at: orNull(z.string()),
  not_before: z.string(),
  not_after: z.string(),
  key_usages: z.array(z.string()).default([]),
  extended_key_usages: z.array(z.string()).default([]),
  private_key_type: z.string(),
  issuer_common_name: z.string().default(''),
  serial_number: z.string(),
  subject_organization: z.string().default(''),
  subject_organizational_unit: z.string().default(''),
  subject_locality: z.string().default(''),
  subject_province: z.string().default(''),
  subject_country: z.string().default(''),
});
export interface TlsCertificate extends z.output<typeof TlsCertificate> {
  /** Set for automatic certificates, null for uploaded ones. */
  issued_at: string | null;
}

export const tlsCertificates = defineResource({
  name: 'TLS certificate',
  label: 'Certificate',
  path: '/tls_certificates',
  idPrefix: 'cert_',
  create: TlsCertificateCreate,
  update: TlsCertificateUpdate,
  answer: TlsCertificate,
});

const NOTHING_SENT = 1919;

/** The content of the PEM is checked where certificates are parsed. */
export const CertificateAuthorityCreate = body({
  ...annotations(),
  ca_pem: z
    .string(refused(NOTHING_SENT, 'is missing or not a string'))
    .min(1, refused(NOTHING_SENT, 'is empty'))
    .pipe(text(64 * 1024, 1921)),
});
export interface CertificateAuthorityCreate extends z.input<typeof CertificateAuthorityCreate> {
  /** Exactly one certificate, of a CA. */
  ca_pem: string;
}

export const CertificateAuthorityUpdate = body(annotations());
export interface CertificateAuthorityUpdate extends z.input<typeof CertificateAuthorityUpdate> {}

/** A CA that verifies client certificates at an edge. */
export const CertificateAuthority = z.object({
  ...COMMON_ANSWER,
  ...ANNOTATIONS_ANSWER,
  ca_pem: z.string(),
  subject_common_name: z.string().default(''),
  not_before: z.string(),
  not_after: z.string(),
  key_usages: z.array(z.string()).default([]),
  extended_key_usages: z.array(z.string()).default([]),
});
export interface CertificateAuthority extends z.output<typeof CertificateAuthority> {}

export const certificateAuthorities = defineResource({
  name: 'certificate authority',
  label: 'Client CA',
  path: '/certificate_authorities',
  idPrefix: 'ca_',
  create: CertificateAuthorityCreate,
  update: CertificateAuthorityUpdate,
  answer: CertificateAuthority,
});
