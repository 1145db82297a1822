import type { JSX } from 'preact';
import type { TlsCertificate } from '../../../management/resources/tls-certificate.ts';
import { CopyButton } from '../../ui/copy-button.tsx';
import { Badge, type Tone } from '../../ui/notice.tsx';
import { present } from '../../ui/time-span.ts';
import { ANNOTATION_FIELDS, annotationValues, changedAnnotations, newAnnotations } from '../annotations.ts';
import { dateOf, Named } from '../cells.tsx';
import { removal } from '../confirm-dialog.tsx';
import { commonFacts, optional } from '../facts.tsx';
import { fleet } from '../fleet-strings.ts';
import { edited } from '../form-dialog.tsx';
import type { Section } from '../section.ts';
import { gateway } from '../strings.ts';

const text = fleet.certificates;
/** A certificate that nobody renews needs attention so many milliseconds before its end. */
const SOON_MS = 14 * 24 * 60 * 60 * 1000;

export type Validity = 'expired' | 'soon' | 'valid';

/** Whether a certificate is still valid. */
export function validityOf({ not_after }: { not_after: string }): Validity {
  const left = new Date(not_after).getTime() - present.value;
  if (left <= 0) return 'expired';
  return left < SOON_MS ? 'soon' : 'valid';
}

const TONES: Record<Validity, Tone> = { expired: 'bad', soon: 'warning', valid: 'good' };

/** The end of a certificate's validity. */
export function ValidUntil({ of }: { of: { not_after: string } }): JSX.Element {
  const validity = validityOf(of);
  const date = dateOf(of.not_after);
  return <Badge tone={TONES[validity]}>{validity === 'expired' ? text.expired(date) : date}</Badge>;
}

/** A PEM to look at and copy. */
export function Pem({ pem, name }: { pem: string; name: string }): JSX.Element {
  return (
    <details class="pem">
      <summary>{text.pem}</summary>
      <div class="with-copy">
        <pre>{pem}</pre>
        <CopyButton text={pem} what={name} />
      </div>
    </details>
  );
}

type WithNames = Pick<TlsCertificate, 'id' | 'subject_common_name' | 'subject_alternative_names'>;

const namesOf = ({ subject_alternative_names: { dns_names, ips } }: WithNames) => [...dns_names, ...ips];

export function nameOfCertificate(certificate: WithNames): string {
  return certificate.subject_common_name || namesOf(certificate)[0] || certificate.id;
}

const source = ({ issued_at }: TlsCertificate) => (issued_at === null ? text.uploaded : text.automatic);

export const certificatesSection: Section<TlsCertificate> = {
  name: 'certificates',
  path: '/tls_certificates',
  listKey: 'tls_certificates',
  isLive: false,
  tables: ['tls_certificates'],
  nameOf: nameOfCertificate,
  columns: [
    {
      head: text.names,
      cell: (each) => <Named name={nameOfCertificate(each)} below={namesOf(each).slice(1, 4).join(', ')} />,
    },
    { head: text.valid, cell: (each) => <ValidUntil of={each} /> },
    { head: text.kind, cell: source },
    { head: text.issuer, cell: ({ issuer_common_name }) => issuer_common_name || gateway.list.none },
  ],
  searchText: (each) =>
    [each.id, ...namesOf(each), nameOfCertificate(each), each.issuer_common_name, each.description].join(' '),
  empty: { title: text.emptyTitle, text: text.empty },
  create: {
    label: text.newLabel,
    fields: [
      {
        name: 'certificate_pem',
        label: text.chain,
        hint: text.chainHint,
        kind: 'code',
        required: text.chainRequired,
      },
      {
        name: 'private_key_pem',
        label: text.privateKey,
        hint: text.privateKeyHint,
        kind: 'code',
        required: text.privateKeyRequired,
      },
      ...ANNOTATION_FIELDS.slice(0, 1),
    ],
    body: ({ certificate_pem = '', private_key_pem = '', ...values }) => ({
      certificate_pem,
      private_key_pem,
      ...newAnnotations(values),
    }),
  },
  facts: (each) => [
    { label: text.names, value: namesOf(each).join(', ') || nameOfCertificate(each) },
    { label: text.valid, value: <ValidUntil of={each} /> },
    { label: text.from, value: dateOf(each.not_before) },
    { label: text.kind, value: source(each) },
    ...optional(text.issuer, each.issuer_common_name),
    ...optional(text.organization, each.subject_organization),
    { label: text.key, value: each.private_key_type.toUpperCase() },
    { label: text.serial, value: <code>{each.serial_number}</code> },
    ...commonFacts(each),
  ],
  more: (each) => <Pem pem={each.certificate_pem} name={nameOfCertificate(each)} />,
  actions: (each) => {
    const path = `/tls_certificates/${each.id}`;
    const edit = edited({
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
    });
    const { title, used, submit } = text.remove;
    // Those of domains with automatic renewal end with the renewal.
    return each.issued_at !== null
      ? [edit]
      : [edit, removal({ title: title(nameOfCertificate(each)), effects: [used], submit, path })];
  },
};
