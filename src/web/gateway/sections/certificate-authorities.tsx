import type { CertificateAuthority } from '../../../management/resources/certificate-authority.ts';
import { ANNOTATION_FIELDS, annotationValues, changedAnnotations, newAnnotations } from '../annotations.ts';
import { Ago, dateOf, Named } from '../cells.tsx';
import { removal } from '../confirm-dialog.tsx';
import { commonFacts, optional } from '../facts.tsx';
import { fleet } from '../fleet-strings.ts';
import { edited } from '../form-dialog.tsx';
import type { Section } from '../section.ts';
import { gateway } from '../strings.ts';
import { Pem, ValidUntil } from './tls-certificates.tsx';

const text = fleet.authorities;

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
    { head: text.subject, cell: (each) => <Named name={nameOfAuthority(each)} below={each.description} /> },
    { head: text.valid, cell: (each) => <ValidUntil of={each} /> },
    { head: gateway.item.created, cell: ({ created_at }) => <Ago moment={created_at} /> },
  ],
  searchText: (each) => [each.id, nameOfAuthority(each), each.description].join(' '),
  empty: { title: text.emptyTitle, text: text.empty },
  create: {
    label: text.newLabel,
    fields: [
      { name: 'ca_pem', label: text.pem, hint: text.pemHint, kind: 'code', required: text.pemRequired },
      ...ANNOTATION_FIELDS.slice(0, 1),
    ],
    body: ({ ca_pem = '', ...values }) => ({ ca_pem, ...newAnnotations(values) }),
  },
  facts: (each) => [
    { label: text.subject, value: each.subject_common_name || gateway.list.none },
    { label: text.valid, value: <ValidUntil of={each} /> },
    { label: text.from, value: dateOf(each.not_before) },
    ...optional(text.usages, [...each.key_usages, ...each.extended_key_usages].join(', ')),
    ...commonFacts(each),
  ],
  more: (each) => <Pem pem={each.ca_pem} name={nameOfAuthority(each)} />,
  actions: (each) => {
    const path = `/certificate_authorities/${each.id}`;
    const { title, used, submit } = text.remove;
    return [
      edited({
        name: 'edit',
        label: gateway.item.edit,
        method: 'PATCH',
        path,
        form: {
          label: text.edit,
          fields: ANNOTATION_FIELDS,
          values: annotationValues(each),
          body: changedAnnotations,
        },
      }),
      removal({ title: title(nameOfAuthority(each)), effects: [used], submit, path }),
    ];
  },
};
