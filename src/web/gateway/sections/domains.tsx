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
import { fleet } from '../fleet-strings.ts';
import { filled } from '../form.ts';
import { edited } from '../form-dialog.tsx';
import { ItemLink } from '../item-link.tsx';
import { loadOptions } from '../options.ts';
import type { Action, Section } from '../section.ts';
import { api } from '../session.ts';
import { gateway } from '../strings.ts';
import { certificatesSection } from './tls-certificates.tsx';

const text = fleet.domains;
/** What new domains get. */
export const CERTIFICATE_POLICY = { authority: 'letsencrypt', private_key_type: 'ecdsa' };
const AUTOMATIC = ['yes', 'no'] as const;

export const domainsSection: Section<ReservedDomain> = {
  name: 'domains',
  path: '/reserved_domains',
  listKey: 'reserved_domains',
  isLive: false,
  tables: ['reserved_domains'],
  nameOf: ({ domain }) => domain,
  columns: [
    { head: text.domain, cell: ({ domain }) => <Named name={domain} unicode={domain} /> },
    { head: text.certificate, cell: (domain) => <Certificate domain={domain} /> },
    { head: text.description, cell: ({ description }) => description || gateway.list.none },
    { head: text.created, cell: ({ created_at }) => <Ago moment={created_at} /> },
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
  empty: { title: text.emptyTitle, text: text.empty },
  create: {
    label: text.newLabel,
    fields: [
      { name: 'domain', label: text.name, hint: text.nameHint, kind: 'text', required: text.nameRequired },
      {
        name: 'automatic',
        member: 'certificate_management_policy',
        label: text.automatic,
        kind: 'choice',
        options: AUTOMATIC.map((value) => ({
          value,
          label: text.automaticOptions[value],
          hint: text.automaticHints[value],
        })),
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
    ...optional(text.unicode, unicodeForm(domain.domain)),
    { label: text.certificate, value: <Certificate domain={domain} /> },
    ...optional(
      gateway.sections.certificates,
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
    label: text.startAutomatic.label,
    title: text.startAutomatic.title(domain.domain),
    effects: [text.startAutomatic.effect, ...(certificate ? [text.startAutomatic.replaces] : [])],
    submit: text.startAutomatic.submit,
    isDestructive: false,
    run: () => api('PATCH', path, { certificate_management_policy: CERTIFICATE_POLICY }),
  });
  const stop = confirmed({
    name: 'stop-automatic',
    label: text.stopAutomatic.label,
    title: text.stopAutomatic.title(domain.domain),
    effects: [text.stopAutomatic.effect],
    submit: text.stopAutomatic.submit,
    isDestructive: true,
    run: () => api('DELETE', `${path}/certificate_management_policy`),
  });
  return [
    edited({
      name: 'edit',
      label: gateway.item.edit,
      method: 'PATCH',
      path,
      form: {
        label: text.edit,
        fields: [
          ...ANNOTATION_FIELDS,
          {
            name: 'certificate_id',
            label: text.certificate,
            hint: text.certificateHint,
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
      title: text.remove.title(domain.domain),
      effects: [text.remove.endpoints(domain.domain), ...(policy ? [text.remove.certificate] : [])],
      submit: text.remove.submit,
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
  const labels = text.certificateState;
  if (policy === null) {
    return { tone: 'neutral', label: certificate === null ? labels.none : labels.uploaded, detail: null };
  }
  const job = status?.provisioning_job ?? null;
  if (job?.error_code) {
    const next = job.retries_at === null ? [] : [text.records.retries(dateOf(job.retries_at))];
    return { tone: 'bad', label: labels.failed, detail: [job.msg, ...next].join(' ') };
  }
  const renews = status?.renews_at ?? null;
  if (renews === null) return { tone: 'busy', label: labels.busy, detail: job?.msg ?? null };
  return { tone: 'good', label: labels.issued(dateOf(renews)), detail: job?.msg ?? null };
}

function Certificate({ domain }: { domain: ReservedDomain }): JSX.Element {
  const { tone, label } = certificateOf(domain);
  return <Badge tone={tone}>{label}</Badge>;
}
