import { z } from 'zod';
import { ANNOTATIONS_ANSWER, annotations, body, COMMON_ANSWER, text } from './members.ts';
import { refused } from './refusal.ts';
import { UNKNOWN_ID } from './resource.ts';

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

export const certificateAuthorities = {
  name: 'certificate authority',
  path: '/certificate_authorities',
  idPrefix: 'ca_',
  listKey: 'certificate_authorities',
  unknownIdCode: UNKNOWN_ID,
  create: CertificateAuthorityCreate,
  update: CertificateAuthorityUpdate,
  answer: CertificateAuthority,
};
