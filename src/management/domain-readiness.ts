import { OperatorError } from '../lib/errors.ts';
import type { CnameChecker, CnameRecord } from './cname-record.ts';
import type { Run } from './provision-run.ts';
import type { ReservedDomain } from './resources/reserved-domain.ts';

/** Raised when the time for waiting is over. What was made stays; a later run goes on from there. */
export class NotReadyInTime extends OperatorError {
  /** Exit code of its own, so that a script can tell "not yet" from "refused". */
  static readonly EXIT_CODE = 5;

  constructor(what: string) {
    super(`${what}; run the same command again to continue`, NotReadyInTime.EXIT_CODE);
  }
}

/** Often enough for a person who watches, seldom enough for the resolver and the API. */
const DNS_INTERVAL_MS = 5000;
const CERTIFICATE_INTERVAL_MS = 3000;

/** Waits until every record is found, and reports each when its state changes. */
export async function awaitRecords(records: readonly CnameRecord[], checker: CnameChecker, run: Run): Promise<void> {
  const told = new Map<string, string>();
  let missing = records;
  for (;;) {
    const findings = await Promise.all(missing.map(async (record) => ({ record, ...(await checker.check(record)) })));
    for (const { record, inPlace, found } of findings) {
      if (told.get(record.name) !== found) run.report({ step: 'dns', record, inPlace, found });
      told.set(record.name, found);
    }
    missing = findings.filter(({ inPlace }) => !inPlace).map(({ record }) => record);
    if (missing.length === 0) return;
    await pause(run, DNS_INTERVAL_MS, () => `DNS records still missing: ${missing.map(({ name }) => name).join(', ')}`);
  }
}

/**
 * Waits until the domain has its certificate.
 *
 * @returns the domain as it is then
 */
export async function awaitCertificate(run: Run, domain: ReservedDomain): Promise<ReservedDomain> {
  let current = await retryNow(run, domain);
  let told = '';
  while (current.certificate === null) {
    const job = current.certificate_management_status?.provisioning_job ?? null;
    const message = job?.msg ?? 'The certificate is pending.';
    const state = job?.error_code == null ? 'waiting' : 'failing';
    if (told !== state + message)
      run.report({ step: 'certificate', state, message, retriesAt: job?.retries_at ?? null });
    told = state + message;
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
 * A service that looked before the records were there looks again only after an ever longer pause;
 * setting the policy anew makes it look at once.
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
