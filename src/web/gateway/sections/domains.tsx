import type { JSX } from 'preact';
import type { ReservedDomain } from '../../../management/resources/reserved-domain.ts';
import { CopyButton } from '../../ui/copy-button.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { Badge, Notice, type Tone } from '../../ui/notice.tsx';
import { Ago, dateOf, Named } from '../cells.tsx';
import { confirmed } from '../confirm-dialog.tsx';
import { filled, type Section } from '../section.ts';
import { api } from '../session.ts';
import { gateway } from '../strings.ts';

const text = gateway.domains;
const CERTIFICATE_POLICY = { authority: 'letsencrypt', private_key_type: 'ecdsa' };

export const domainsSection: Section<ReservedDomain> = {
  name: 'domains',
  path: '/reserved_domains',
  listKey: 'reserved_domains',
  isLive: false,
  columns: [
    { head: text.domain, cell: ({ domain }) => <Named name={domain} /> },
    { head: text.certificate, cell: (domain) => <Certificate domain={domain} /> },
    { head: text.description, cell: ({ description }) => description || gateway.list.none },
    { head: text.created, cell: ({ created_at }) => <Ago moment={created_at} /> },
  ],
  searchText: (domain) => [domain.domain, domain.description, domain.metadata, certificateOf(domain).label].join(' '),
  empty: { title: text.emptyTitle, text: text.empty },
  actions: (domain) => [
    { name: 'records', label: text.records.label, dialog: (close) => <Records domain={domain} onClose={close} /> },
    confirmed({
      name: 'delete',
      label: text.remove.label,
      title: text.remove.title(domain.domain),
      effects: [
        text.remove.endpoints(domain.domain),
        ...(domain.certificate_management_policy ? [text.remove.certificate] : []),
      ],
      submit: text.remove.submit,
      isDestructive: true,
      run: () => api('DELETE', `/reserved_domains/${domain.id}`),
    }),
  ],
  create: {
    label: text.newLabel,
    fields: [
      { name: 'domain', label: text.name, hint: text.nameHint, kind: 'text' },
      {
        name: 'automatic',
        label: text.automatic,
        kind: 'yes-no',
        options: text.automaticOptions,
        hints: text.automaticHints,
      },
      { name: 'description', label: gateway.form.description, hint: gateway.form.optional, kind: 'text' },
    ],
    body: ({ domain = '', automatic, description }) => ({
      domain: domain.trim(),
      ...filled({ description }),
      ...(automatic !== 'no' && { certificate_management_policy: CERTIFICATE_POLICY }),
    }),
  },
  afterCreate: 'records',
};

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

function Records({ domain, onClose }: { domain: ReservedDomain; onClose: () => void }): JSX.Element {
  const { tone, detail } = certificateOf(domain);
  const base = domain.domain.replace(/^\*\./, '');
  const records = [
    { name: domain.domain, target: domain.cname_target, what: text.records.traffic },
    { name: `_acme-challenge.${base}`, target: domain.acme_challenge_cname_target, what: text.records.challenge },
  ].filter(({ target }) => target !== null);
  return (
    <Dialog title={text.records.title(domain.domain)} onClose={onClose} wide>
      <p>{records.length === 0 ? text.records.none : text.records.intro}</p>
      {records.map(({ name, target, what }) => {
        const line = `${name}. 300 IN CNAME ${target}.`;
        return (
          <div key={name}>
            <h3>{what}</h3>
            <div class="with-copy">
              <pre>{line}</pre>
              <CopyButton text={line} what={`${text.records.line} ${name}`} />
            </div>
          </div>
        );
      })}
      {domain.certificate_management_policy && (
        <div class="certificate">
          <h3>{text.records.job}</h3>
          <Certificate domain={domain} />
          {detail !== null && <Notice tone={tone}>{detail}</Notice>}
        </div>
      )}
    </Dialog>
  );
}
