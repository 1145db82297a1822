import type { JSX } from 'preact';
import type { CertificateAuthority, TlsCertificate } from '../../../management/resources/certificate.ts';
import { CopyButton } from '../../ui/button.tsx';
import { Badge, type Tone } from '../../ui/notice.tsx';
import { present } from '../../ui/time-span.ts';
import { dateOf, Named, optional } from '../cells.tsx';
import { ANNOTATIONS, CREATED, DESCRIPTION_FIELD, resource } from '../resource-section.tsx';
import { RESOURCES } from '../resources.ts';

/** A certificate that nobody renews needs attention so many milliseconds before its end. */
const SOON_MS = 14 * 24 * 60 * 60 * 1000;

export type ShownValidity = 'expired' | 'soon' | 'valid';

/** Whether a certificate is still valid. */
function validityOf({ not_after }: { not_after: string }): ShownValidity {
  const left = new Date(not_after).getTime() - present.value;
  if (left <= 0) return 'expired';
  return left < SOON_MS ? 'soon' : 'valid';
}

const TONES: Record<ShownValidity, Tone> = { expired: 'bad', soon: 'warning', valid: 'good' };

/** The end of a certificate's validity. */
function ValidUntil({ of }: { of: { not_after: string } }): JSX.Element {
  const validity = validityOf(of);
  const date = dateOf(of.not_after);
  return <Badge tone={TONES[validity]}>{validity === 'expired' ? `Expired ${date}` : date}</Badge>;
}

/** A PEM to look at and copy. */
function Pem({ pem, name }: { pem: string; name: string }): JSX.Element {
  return (
    <details class="pem disclosure">
      <summary>Certificate</summary>
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

const source = ({ issued_at }: TlsCertificate) => (issued_at === null ? 'Uploaded' : 'Automatic');

export const certificatesSection = resource<TlsCertificate>(RESOURCES.tlsCertificates, {
  name: 'certificates',
  title: 'Certificates',
  nameOf: nameOfCertificate,
  columns: [
    {
      head: 'Names',
      cell: (each) => <Named name={nameOfCertificate(each)} below={namesOf(each).slice(1, 4).join(', ')} />,
    },
    { head: 'Valid until', sort: 'not_after', cell: (each) => <ValidUntil of={each} /> },
    { head: 'Source', cell: source },
    { head: 'Issued by', cell: ({ issuer_common_name }) => issuer_common_name || '–' },
  ],
  empty: {
    title: 'No certificates yet',
    text: 'Certificates of domains with automatic renewal appear here. You can upload others.',
  },
  create: {
    label: 'Upload certificate',
    fields: [
      {
        name: 'certificate_pem',
        label: 'Certificate chain (PEM)',
        hint: 'The certificate of the domain first, then the intermediates.',
        kind: 'code',
        required: 'Paste the certificate chain.',
      },
      {
        name: 'private_key_pem',
        label: 'Private key (PEM)',
        hint: 'Without a password. It is stored encrypted, and never shown again.',
        kind: 'code',
        required: 'Paste the private key.',
      },
      DESCRIPTION_FIELD,
    ],
    body: ({ certificate_pem = '', private_key_pem = '' }) => ({ certificate_pem, private_key_pem }),
  },
  facts: (each) => [
    { label: 'Names', value: namesOf(each).join(', ') || nameOfCertificate(each) },
    { label: 'Valid until', value: <ValidUntil of={each} /> },
    { label: 'Valid from', value: dateOf(each.not_before) },
    { label: 'Source', value: source(each) },
    ...optional('Issued by', each.issuer_common_name),
    ...optional('Organization', each.subject_organization),
    { label: 'Key', value: each.private_key_type.toUpperCase() },
    { label: 'Serial number', value: <code>{each.serial_number}</code> },
  ],
  more: (each) => <Pem pem={each.certificate_pem} name={nameOfCertificate(each)} />,
  edit: { label: 'Edit certificate', fields: ANNOTATIONS },
  remove: (each) => ({
    title: `Delete the certificate ${nameOfCertificate(each)}?`,
    effects: ['A certificate that a domain uses cannot be deleted.'],
    submit: 'Delete certificate',
  }),
  // Those of domains with automatic renewal end with the renewal.
  actions: ({ issued_at }, { edit, remove }) => (issued_at === null ? [...edit, ...remove] : edit),
});

export function nameOfAuthority(
  authority: Pick<CertificateAuthority, 'id' | 'subject_common_name' | 'description'>,
): string {
  return authority.subject_common_name || authority.description || authority.id;
}

export const authoritiesSection = resource<CertificateAuthority>(RESOURCES.certificateAuthorities, {
  name: 'authorities',
  title: 'Client CAs',
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
      DESCRIPTION_FIELD,
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
