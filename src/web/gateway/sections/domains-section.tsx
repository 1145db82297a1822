import type { JSX } from 'preact';
import type { TlsCertificate } from '../../../management/resources/certificate.ts';
import type { ReservedDomain } from '../../../management/resources/reserved-domain.ts';
import { unicodeForm } from '../../ui/address.tsx';
import { Badge, type Tone } from '../../ui/notice.tsx';
import { confirmed } from '../action-dialogs.tsx';
import { Ago, dateOf, Named, optional } from '../cells.tsx';
import { DnsRecords } from '../dns-records.tsx';
import { stateChoice } from '../filters.ts';
import { filled } from '../form.tsx';
import { ItemLink } from '../item-link.tsx';
import { loadOptions } from '../paged-list.ts';
import { ANNOTATIONS, DESCRIPTION_FIELD, resource } from '../resource-section.tsx';
import { RESOURCES } from '../resources.ts';
import type { Action } from '../section.ts';
import { api } from '../session.ts';
import { certificatesSection } from './certificates-section.tsx';

/** The state of a certificate that cannot be issued or renewed. */
export const NEEDS_ATTENTION = 'Needs attention';

/** What new domains get. */
export const CERTIFICATE_POLICY = { authority: 'letsencrypt', private_key_type: 'ecdsa' };

export const domainsSection = resource<ReservedDomain>(RESOURCES.reservedDomains, {
  name: 'domains',
  title: 'Domains',
  nameOf: ({ domain }) => domain,
  columns: [
    { head: 'Domain', sort: 'domain', cell: ({ domain }) => <Named name={domain} unicode={domain} /> },
    { head: 'Certificate', sort: 'state', cell: (domain) => <Certificate domain={domain} /> },
    { head: 'Description', sort: 'description', cell: ({ description }) => description || '–' },
    { head: 'Reserved', cell: ({ created_at }) => <Ago moment={created_at} /> },
  ],
  filters: [
    {
      ...stateChoice({
        failing: NEEDS_ATTENTION,
        provisioning: 'Being issued',
        ready: 'Automatic',
        uploaded: 'Uploaded',
        none: 'The gateway’s own',
      }),
      label: 'Certificate',
    },
  ],
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
      DESCRIPTION_FIELD,
    ],
    body: ({ domain = '', automatic }) => ({
      domain: domain.trim(),
      ...(automatic !== 'no' && { certificate_management_policy: CERTIFICATE_POLICY }),
    }),
  },
  facts: (domain) => [
    ...optional('In Unicode', unicodeForm(domain.domain)),
    { label: 'Certificate', value: <Certificate domain={domain} /> },
    ...optional(certificatesSection.title, domain.certificate && <ItemLink id={domain.certificate.id} />),
  ],
  more: (domain, changed) => <DnsRecords key={domain.id} domain={domain} changed={changed} />,
  edit: {
    label: 'Edit domain',
    fields: [
      ...ANNOTATIONS,
      {
        name: 'certificate_id',
        label: 'Certificate',
        hint: 'One of the uploaded certificates, in place of the present one.',
        kind: 'one-of',
        load: () => loadOptions<TlsCertificate>(certificatesSection, ({ issued_at }) => issued_at === null),
      },
    ],
    values: ({ certificate, certificate_management_policy: policy }) => ({
      certificate_id: policy === null ? (certificate?.id ?? '') : '',
    }),
    body: ({ certificate_id }) => filled({ certificate_id }),
  },
  remove: ({ domain, certificate_management_policy: policy }) => ({
    effects: [
      `All endpoints at ${domain} go offline at once.`,
      ...(policy ? ['Its automatic certificate is no longer renewed.'] : []),
    ],
    submit: 'Delete domain',
  }),
  // Names below the gateway's own domain have its certificate.
  actions: (domain, { edit, remove }) => [
    ...edit,
    ...(domain.cname_target === null ? [] : [switchAutomatic(domain)]),
    ...remove,
  ],
});

/** The action that starts the automatic certificate of a domain, or stops it. */
function switchAutomatic({ id, domain, certificate, certificate_management_policy: policy }: ReservedDomain): Action {
  const path = `/reserved_domains/${id}`;
  const start = confirmed({
    name: 'start-automatic',
    label: 'Automatic certificate',
    title: `Get a certificate for ${domain} automatically?`,
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
    title: `Stop renewing the certificate of ${domain}?`,
    effects: [
      'It loses its certificate at once: clients get one of the gateway’s own CA, until you choose another one.',
    ],
    submit: 'Stop renewal',
    isDestructive: true,
    run: () => api('DELETE', `${path}/certificate_management_policy`),
  });
  return policy === null ? start : stop;
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
