import type { CertificateAuthority } from '../../../management/resources/certificate.ts';
import { dateOf, Named, optional } from '../cells.tsx';
import { ANNOTATIONS, CREATED, DESCRIPTION, resource } from '../resource.tsx';
import { Pem, ValidUntil } from './tls-certificates.tsx';

export function nameOfAuthority(
  authority: Pick<CertificateAuthority, 'id' | 'subject_common_name' | 'description'>,
): string {
  return authority.subject_common_name || authority.description || authority.id;
}

export const authoritiesSection = resource<CertificateAuthority>({
  name: 'authorities',
  path: '/certificate_authorities',
  nameOf: nameOfAuthority,
  columns: [
    { head: 'Subject', cell: (each) => <Named name={nameOfAuthority(each)} below={each.description} /> },
    { head: 'Valid until', cell: (each) => <ValidUntil of={each} /> },
    CREATED,
  ],
  searchTexts: (each) => [each.id, nameOfAuthority(each), each.description],
  empty: {
    title: 'No client CAs yet',
    text: 'With mutual TLS, a TLS edge serves only clients whose certificate one of its CAs has signed.',
  },
  create: {
    label: 'Add client CA',
    fields: [
      {
        name: 'ca_pem',
        label: 'CA certificate (PEM)',
        hint: 'Exactly one certificate, of a CA.',
        kind: 'code',
        required: 'Paste the certificate.',
      },
      DESCRIPTION,
    ],
    body: ({ ca_pem = '' }) => ({ ca_pem }),
  },
  facts: (each) => [
    { label: 'Subject', value: each.subject_common_name || '–' },
    { label: 'Valid until', value: <ValidUntil of={each} /> },
    { label: 'Valid from', value: dateOf(each.not_before) },
    ...optional('Usages', [...each.key_usages, ...each.extended_key_usages].join(', ')),
  ],
  more: (each) => <Pem pem={each.ca_pem} name={nameOfAuthority(each)} />,
  edit: { label: 'Edit client CA', fields: ANNOTATIONS },
  remove: (each) => ({
    title: `Delete the client CA ${nameOfAuthority(each)}?`,
    effects: ['A CA that a TLS edge uses cannot be deleted.'],
    submit: 'Delete client CA',
  }),
});
