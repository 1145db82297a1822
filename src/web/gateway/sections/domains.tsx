import type { JSX } from 'preact';
import type { ReservedDomain } from '../../../management/resources/reserved-domain.ts';
import type { TlsCertificate } from '../../../management/resources/tls-certificate.ts';
import { Badge, type Tone } from '../../ui/notice.tsx';
import { unicodeForm } from '../../ui/unicode-form.ts';
import { ANNOTATION_FIELDS, annotationValues, changedAnnotations, newAnnotations } from '../annotations.ts';
import { Ago, dateOf, Named } from '../cells.tsx';
import { confirmed, removal } from '../confirm-dialog.tsx';
import { DnsRecords } from '../dns-records.tsx';
import { commonFacts, optional } from '../facts.tsx';
import { filled } from '../form.ts';
import { edited } from '../form-dialog.tsx';
import { ItemLink } from '../item-link.tsx';
import { loadOptions } from '../options.ts';
import { type Action, SECTION_TITLES, type Section } from '../section.ts';
import { api } from '../session.ts';
import { certificatesSection } from './tls-certificates.tsx';

/** The state of a certificate that cannot be issued or renewed; a search for it finds them. */
export const NEEDS_ATTENTION = 'Needs attention';

/** What new domains get. */
export const CERTIFICATE_POLICY = { authority: 'letsencrypt', private_key_type: 'ecdsa' };

export const domainsSection: Section<ReservedDomain> = {
  name: 'domains',
  path: '/reserved_domains',
  listKey: 'reserved_domains',
  isLive: false,
  tables: ['reserved_domains'],
  nameOf: ({ domain }) => domain,
  columns: [
    { head: 'Domain', cell: ({ domain }) => <Named name={domain} unicode={domain} /> },
    { head: 'Certificate', cell: (domain) => <Certificate domain={domain} /> },
    { head: 'Description', cell: ({ description }) => description || '–' },
    { head: 'Reserved', cell: ({ created_at }) => <Ago moment={created_at} /> },
  ],
  searchText: (domain) =>
    [
      domain.domain,
      unicodeForm(domain.domain),
      domain.description,
      domain.metadata,
      domain.id,
      certificateOf(domain).label,
    ].join(' '),
  empty: {
    title: 'No reserved domains yet',
    text: 'Reserve a domain to give devices names of your own, with certificates.',
  },
  create: {
    label: 'Reserve domain',
    fields: [
      {
        name: 'domain',
        label: 'Domain',
        hint: 'A hostname such as cam.example.com, or *.example.com for all names below it.',
        kind: 'text',
        required: 'Enter a domain, such as cam.example.com.',
      },
      {
        name: 'automatic',
        member: 'certificate_management_policy',
        label: 'Certificate',
        kind: 'choice',
        options: [
          { value: 'yes', label: 'Automatic', hint: 'Issued and renewed once its DNS records are in place.' },
          { value: 'no', label: 'None', hint: 'You can upload one later.' },
        ],
      },
      ...ANNOTATION_FIELDS.slice(0, 1),
    ],
    body: ({ domain = '', automatic, ...values }) => ({
      domain: domain.trim(),
      ...newAnnotations(values),
      ...(automatic !== 'no' && { certificate_management_policy: CERTIFICATE_POLICY }),
    }),
  },
  facts: (domain) => [
    ...optional('In Unicode', unicodeForm(domain.domain)),
    { label: 'Certificate', value: <Certificate domain={domain} /> },
    ...optional(
      SECTION_TITLES.certificates,
      domain.certificate && <ItemLink section="certificates" id={domain.certificate.id} />,
    ),
    ...commonFacts(domain),
  ],
  more: (domain, changed) => <DnsRecords key={domain.id} domain={domain} changed={changed} />,
  actions: actionsOf,
};

function actionsOf(domain: ReservedDomain): Action[] {
  const { id, certificate, certificate_management_policy: policy, cname_target } = domain;
  const path = `/reserved_domains/${id}`;
  const start = confirmed({
    name: 'start-automatic',
    label: 'Automatic certificate',
    title: `Get a certificate for ${domain.domain} automatically?`,
    effects: [
      'The gateway requests a certificate once the DNS records are in place, and renews it.',
      ...(certificate ? ['The uploaded certificate is no longer used.'] : []),
    ],
    submit: 'Start',
    isDestructive: false,
    run: () => api('PATCH', path, { certificate_management_policy: CERTIFICATE_POLICY }),
  });
  const stop = confirmed({
    name: 'stop-automatic',
    label: 'Stop renewal',
    title: `Stop renewing the certificate of ${domain.domain}?`,
    effects: [
      'It loses its certificate at once: clients get one of the gateway’s own CA, until you choose another one.',
    ],
    submit: 'Stop renewal',
    isDestructive: true,
    run: () => api('DELETE', `${path}/certificate_management_policy`),
  });
  return [
    edited({
      name: 'edit',
      label: 'Edit',
      method: 'PATCH',
      path,
      form: {
        label: 'Edit domain',
        fields: [
          ...ANNOTATION_FIELDS,
          {
            name: 'certificate_id',
            label: 'Certificate',
            hint: 'One of the uploaded certificates, in place of the present one.',
            kind: 'one-of',
            load: () => loadOptions<TlsCertificate>(certificatesSection, ({ issued_at }) => issued_at === null),
          },
        ],
        values: { ...annotationValues(domain), certificate_id: policy === null ? (certificate?.id ?? '') : '' },
        body: ({ certificate_id, ...values }) => ({ ...changedAnnotations(values), ...filled({ certificate_id }) }),
      },
    }),
    // Names below the gateway's own domain have its certificate.
    ...(cname_target === null ? [] : [policy === null ? start : stop]),
    removal({
      title: `Delete ${domain.domain}?`,
      effects: [
        `All endpoints at ${domain.domain} go offline at once.`,
        ...(policy ? ['Its automatic certificate is no longer renewed.'] : []),
      ],
      submit: 'Delete domain',
      path,
    }),
  ];
}

/** How the certificate of a domain is. */
export function certificateOf({
  certificate,
  certificate_management_policy: policy,
  certificate_management_status: status,
}: ReservedDomain): { tone: Tone; label: string; detail: string | null } {
  if (policy === null) {
    return { tone: 'neutral', label: certificate === null ? 'The gateway’s own' : 'Uploaded', detail: null };
  }
  const job = status?.provisioning_job ?? null;
  if (job?.error_code) {
    const next = job.retries_at === null ? [] : [`Next attempt: ${dateOf(job.retries_at)}.`];
    return { tone: 'bad', label: NEEDS_ATTENTION, detail: [job.msg, ...next].join(' ') };
  }
  const renews = status?.renews_at ?? null;
  if (renews === null) return { tone: 'busy', label: 'Being issued', detail: job?.msg ?? null };
  return { tone: 'good', label: `Renews ${dateOf(renews)}`, detail: job?.msg ?? null };
}

function Certificate({ domain }: { domain: ReservedDomain }): JSX.Element {
  const { tone, label } = certificateOf(domain);
  return <Badge tone={tone}>{label}</Badge>;
}
