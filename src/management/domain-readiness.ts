import { OperatorError } from '../lib/errors.ts';
import type { CnameChecker, CnameRecord } from './cname-record.ts';
import type { Run } from './provision-run.ts';
import type { ReservedDomain } from './resources/reserved-domain.ts';

/** Raised when the wait times out. Created resources stay; a later run continues from there. */
export class NotReadyInTime extends OperatorError {
  /** A separate exit code, so that scripts can distinguish "not yet" from a failure. */
  static readonly EXIT_CODE = 5;

  constructor(what: string) {
    super(`${what}; run the same command again to continue`, NotReadyInTime.EXIT_CODE);
  }
}

const DNS_INTERVAL_MS = 5000;
const CERTIFICATE_INTERVAL_MS = 3000;

/** Waits until all records are found. Reports changes of their state. */
export async function awaitRecords(records: readonly CnameRecord[], checker: CnameChecker, run: Run): Promise<void> {
  const reported = new Map<string, string>();
  let missing = records;
  for (;;) {
    const findings = await Promise.all(missing.map(async (record) => ({ record, ...(await checker.check(record)) })));
    for (const { record, inPlace, found } of findings) {
      if (reported.get(record.name) !== found) run.report({ step: 'dns', record, inPlace, found });
      reported.set(record.name, found);
    }
    missing = findings.filter(({ inPlace }) => !inPlace).map(({ record }) => record);
    if (missing.length === 0) return;
    await pause(run, DNS_INTERVAL_MS, () => `DNS records still missing: ${missing.map(({ name }) => name).join(', ')}`);
  }
}

/** Waits until the domain has its certificate; returns the updated domain. */
export async function awaitCertificate(run: Run, domain: ReservedDomain): Promise<ReservedDomain> {
  let current = await retryNow(run, domain);
  let reported = '';
  while (current.certificate === null) {
    const job = current.certificate_management_status?.provisioning_job ?? null;
    const message = job?.msg ?? 'The certificate is pending.';
    const state = job?.error_code == null ? 'waiting' : 'failing';
    if (reported !== state + message)
      run.report({ step: 'certificate', state, message, retriesAt: job?.retries_at ?? null });
    reported = state + message;
    await pause(
      run,
      CERTIFICATE_INTERVAL_MS,
      () => `the certificate for ${domain.domain} is still pending: ${message}`,
    );
    current = await run.client.reservedDomains.get(domain.id, { signal: run.signal });
  }
  run.report({ step: 'certificate', state: 'ready', message: 'The certificate is issued.', retriesAt: null });
  return current;
}

/**
 * Retries a failed DNS check at once by updating the policy. The gateway itself retries with growing delays.
 */
async function retryNow({ client, signal }: Run, { id }: ReservedDomain): Promise<ReservedDomain> {
  const domain = await client.reservedDomains.get(id, { signal });
  const job = domain.certificate_management_status?.provisioning_job;
  const policy = domain.certificate_management_policy;
  if (job?.error_code !== 'DNS_ERROR' || policy === null) return domain;
  const same = {
    authority: 'letsencrypt',
    private_key_type: policy.private_key_type === 'ecdsa' ? 'ecdsa' : 'rsa',
  } as const;
  return client.reservedDomains.update(id, { certificate_management_policy: same }, { signal });
}

async function pause({ clock, deadline, signal }: Run, ms: number, what: () => string): Promise<void> {
  if (clock.now() + ms > deadline) throw new NotReadyInTime(what());
  await clock.sleep(ms, signal);
}
