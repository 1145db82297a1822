import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import type { DnsCheck, DnsRecordCheck, ReservedDomain } from '../../management/resources/reserved-domain.ts';
import { Button, CopyButton } from '../ui/button.tsx';
import { Badge, Notice, ProblemNotice } from '../ui/notice.tsx';
import { useSubmission } from '../ui/submission.ts';
import { spanSince } from '../ui/time-span.ts';
import { dateOf } from './cells.tsx';
import { api } from './session.ts';

interface ShownRecord {
  name: string;
  /** Null: no record, only an address. */
  target: string | null;
  what: string;
}

/** The records that a domain needs; none below the gateway's own domain. */
function recordsOf({ domain, cname_target, acme_challenge_cname_target }: ReservedDomain): ShownRecord[] {
  return [
    ...(cname_target === null ? [] : [{ name: domain, target: cname_target, what: 'Leads clients to the gateway' }]),
    ...(acme_challenge_cname_target === null
      ? []
      : [
          {
            name: `_acme-challenge.${domain.replace(/^\*\./, '')}`,
            target: acme_challenge_cname_target,
            what: 'Lets the gateway get the certificate',
          },
        ]),
  ];
}

/** The records of a domain to copy, whether they are in place, and the state of its certificate. */
export function DnsRecords({ domain, changed }: { domain: ReservedDomain; changed: () => void }): JSX.Element {
  const check = useSignal<DnsCheck | null>(null);
  const { busy, problem, run } = useSubmission();
  const checkNow = async () => {
    check.value = await api<DnsCheck>('POST', `/reserved_domains/${domain.id}/check_dns`);
    // The certificate's state may have changed as well.
    changed();
  };
  const records = recordsOf(domain);
  const found = check.value?.records ?? [];
  return (
    <section class="part" aria-labelledby="records">
      <div class="section-head">
        <h3 id="records">DNS records</h3>
        <Button busy={busy} onClick={() => void run(checkNow)}>
          {check.value ? 'Check again' : 'Check DNS'}
        </Button>
      </div>
      {problem && <ProblemNotice title="The check failed" problem={problem} />}
      <p>
        {records.length === 0
          ? 'This domain needs no records: it is below the gateway’s own domain.'
          : 'Add these records at your DNS provider, with proxying turned off:'}
      </p>
      {records.map((record) => (
        <Record key={record.name} record={record} found={found.find(({ name }) => name === record.name)} />
      ))}
      {records.length === 0 && found.map((each) => <Finding key={each.name} found={each} />)}
      {found.some(({ in_place }) => !in_place) && (
        <p class="hint">Changes of DNS can take an hour until the gateway sees them.</p>
      )}
      <Job domain={domain} />
    </section>
  );
}

function Record({
  record: { name, target, what },
  found,
}: {
  record: ShownRecord;
  found: DnsRecordCheck | undefined;
}): JSX.Element {
  const line = `${name}. 300 IN CNAME ${target}.`;
  return (
    <div class="record">
      <h4>{what}</h4>
      <div class="with-copy">
        <pre>{line}</pre>
        <CopyButton text={line} what={`record ${name}`} />
      </div>
      {found && <Finding found={found} />}
    </div>
  );
}

function Finding({ found: { in_place, found } }: { found: DnsRecordCheck }): JSX.Element {
  return (
    <p class="finding" role="status">
      <Badge tone={in_place ? 'good' : 'warning'}>{in_place ? 'In place' : 'Not in place'}</Badge>
      <span class="hint">Found: {found}.</span>
    </p>
  );
}

/** Progress or failure of the automatic certificate. */
function Job({
  domain: { certificate_management_policy: policy, certificate_management_status: status },
}: {
  domain: ReservedDomain;
}): JSX.Element | null {
  if (policy === null) return null;
  const { renews_at: renews = null, provisioning_job: job = null } = status ?? {};
  return (
    <div class="record">
      <h4>Certificate</h4>
      {job && (
        <Notice tone={job.error_code ? 'bad' : 'busy'}>
          <p>{job.msg}</p>
          <p>
            Requested {spanSince(job.started_at)} ago.{' '}
            {job.retries_at !== null && `Next attempt: ${dateOf(job.retries_at)}.`}
          </p>
          {job.error_code !== null && <p class="code-line">{job.error_code}</p>}
        </Notice>
      )}
      {renews !== null && <p>Renews automatically: {dateOf(renews)}.</p>}
    </div>
  );
}
