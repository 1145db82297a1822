import type { CertificateAuthority } from '../../../management/resources/certificate-authority.ts';
import { ANNOTATION_FIELDS, annotationValues, changedAnnotations, newAnnotations } from '../annotations.ts';
import { Ago, dateOf, Named } from '../cells.tsx';
import { removal } from '../confirm-dialog.tsx';
import { commonFacts, optional } from '../facts.tsx';
import { edited } from '../form-dialog.tsx';
import type { Section } from '../section.ts';
import { Pem, ValidUntil } from './tls-certificates.tsx';

export function nameOfAuthority(
  authority: Pick<CertificateAuthority, 'id' | 'subject_common_name' | 'description'>,
): string {
  return authority.subject_common_name || authority.description || authority.id;
}

export const authoritiesSection: Section<CertificateAuthority> = {
  name: 'authorities',
  path: '/certificate_authorities',
  listKey: 'certificate_authorities',
  isLive: false,
  tables: ['certificate_authorities'],
  nameOf: nameOfAuthority,
  columns: [
    { head: 'Subject', cell: (each) => <Named name={nameOfAuthority(each)} below={each.description} /> },
    { head: 'Valid until', cell: (each) => <ValidUntil of={each} /> },
    { head: 'Created', cell: ({ created_at }) => <Ago moment={created_at} /> },
  ],
  searchText: (each) => [each.id, nameOfAuthority(each), each.description].join(' '),
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
      ...ANNOTATION_FIELDS.slice(0, 1),
    ],
    body: ({ ca_pem = '', ...values }) => ({ ca_pem, ...newAnnotations(values) }),
  },
  facts: (each) => [
    { label: 'Subject', value: each.subject_common_name || '–' },
    { label: 'Valid until', value: <ValidUntil of={each} /> },
    { label: 'Valid from', value: dateOf(each.not_before) },
    ...optional('Usages', [...each.key_usages, ...each.extended_key_usages].join(', ')),
    ...commonFacts(each),
  ],
  more: (each) => <Pem pem={each.ca_pem} name={nameOfAuthority(each)} />,
  actions: (each) => {
    const path = `/certificate_authorities/${each.id}`;

    return [
      edited({
        name: 'edit',
        label: 'Edit',
        method: 'PATCH',
        path,
        form: {
          label: 'Edit client CA',
          fields: ANNOTATION_FIELDS,
          values: annotationValues(each),
          body: changedAnnotations,
        },
      }),
      removal({
        title: `Delete the client CA ${nameOfAuthority(each)}?`,
        effects: ['A CA that a TLS edge uses cannot be deleted.'],
        submit: 'Delete client CA',
        path,
      }),
    ];
  },
};
