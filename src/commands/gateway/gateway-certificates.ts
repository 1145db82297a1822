import type { ManagedDomainRow } from '../../gateway/store/managed-domains.ts';
import type { Store } from '../../gateway/store/store.ts';
import { printable } from '../../lib/terminal-text.ts';
import { note, print } from '../output.ts';

/** Prints the status of automatic certificates, those of the gateway's own names first. */
export function listCertificates({ ownDomains, reservedDomains, tlsCertificates }: Store): void {
  const managed = [...ownDomains.managed(), ...reservedDomains.managed()];
  if (managed.length === 0) {
    note('No automatic certificates: no reserved domain has a management policy.');
    return;
  }
  const width = Math.max(...managed.map(({ domain }) => domain.length));
  for (const row of managed) {
    const ends = row.certificate_id && tlsCertificates.get(row.certificate_id)?.facts.not_after;
    const parts = [...(ends ? [`valid until ${ends}`] : []), nextStep(row)];
    print(printable(`${row.domain.padEnd(width)}  ${parts.join('; ')}`));
  }
}

function nextStep({ job, renews_at }: ManagedDomainRow): string {
  if (!job) return `renews at ${renews_at}`;
  if (!job.error_code) return 'pending';
  return `${job.error_code}: ${job.msg} Next try at ${job.retries_at}.`;
}
