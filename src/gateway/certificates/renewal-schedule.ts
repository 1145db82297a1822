import { backoffCeiling } from '../../lib/time/backoff.ts';
import type { ManagedDomainRow, ProvisioningJob, StoredCertificatePolicy } from '../store/domains.ts';
import { timestamp } from '../store/store.ts';
import type { IssueError } from './issuing/certificate-issuer.ts';

const HOUR_MS = 60 * 60 * 1000;
const DAY_MS = 24 * HOUR_MS;

export function freshJob(now: string): ProvisioningJob {
  return {
    error_code: null,
    msg: 'Managed certificate provisioning in progress.',
    started_at: now,
    retries_at: null,
    attempts: 0,
  };
}

/** A job from the start, which still revokes what an earlier one was to revoke. */
export function restartedJob(now: string, earlier: ProvisioningJob | null): ProvisioningJob {
  const { revokes, revokes_by } = earlier ?? {};
  // A clock that was ahead has left a time that is far away now.
  const by = revokes_by && [revokes_by, latestRevocation(now)].sort()[0];
  return { ...freshJob(now), ...(revokes !== undefined && { revokes }), ...(by && { revokes_by: by }) };
}

/** CAs have to revoke within a day of a report that a key has leaked (CA/Browser Forum, Baseline Requirements, 4.9.1.1). */
export function latestRevocation(now: string): string {
  return timestamp(Date.parse(now) + DAY_MS);
}

/** Delays before a retry, by error code; without jitter, as one gateway asks for one domain at a time. */
const RETRY = {
  DNS_ERROR: { baseMs: 60_000, maxMs: HOUR_MS },
  INTERNAL_ERROR: { baseMs: 30_000, maxMs: HOUR_MS },
};

/** Let's Encrypt allows five failed validations of a name, and one more every twelve minutes. */
export const AFTER_FAILED_VALIDATION_S = 15 * 60;

/** The longest `Retry-After` that is honoured: Let's Encrypt's rate limits last a week. */
const LONGEST_WAIT_MS = 7 * DAY_MS;

/** The job after a further failure, whose `retryAfter` makes the wait longer, never shorter, up to a week. */
export function failedJob(
  job: ProvisioningJob,
  { code, message: msg, retryAfter }: IssueError,
  now: number,
): ProvisioningJob & { retries_at: string } {
  const ownDelay = backoffCeiling(job.attempts, RETRY[code]);
  const delay = Math.min(LONGEST_WAIT_MS, Math.max(ownDelay, (retryAfter ?? 0) * 1000));
  return { ...job, error_code: code, msg, retries_at: timestamp(now + delay), attempts: job.attempts + 1 };
}

/** When to check a name after its certificate was issued: an old certificate or a wrong clock must not renew in a loop. */
export function renewalDue(renewsAt: string, now: number): string {
  const soon = timestamp(now + HOUR_MS);
  return renewsAt > soon ? renewsAt : soon;
}

/**
 * The row without dates that come from a clock that was ahead; the same row when it has none.
 * @param beginsAt start of validity of a certificate that the same clock dated; null for others
 */
export function afterSetBack<Row extends ManagedDomainRow>(row: Row, now: number, beginsAt: string | null): Row {
  const { job, due_at, renews_at } = row;
  if (due_at === null) return row;
  const at = timestamp(now);
  if (job) {
    const latest = job.retries_at === null ? at : timestamp(now + LONGEST_WAIT_MS);
    const again = { ...restartedJob(at, job), ...(job.order && { order: job.order }) };
    return due_at > latest ? { ...row, job: again, due_at: at } : row;
  }
  if (beginsAt !== null && beginsAt > at) return { ...row, due_at: at };
  const latest = renewalDue(renews_at ?? at, now);
  return due_at > latest ? { ...row, due_at: latest } : row;
}

/** The domain without automatic renewal; its current certificate stays attached. */
export function withoutPolicy<Row extends ManagedDomainRow>(row: Row): Row {
  return { ...row, policy: null, renews_at: null, job: null, due_at: null };
}

/**
 * The domain under a policy. A new policy or key type starts a job; the same policy only restarts a job that is failing, which
 * goes on with its order.
 */
export function withPolicy<Row extends ManagedDomainRow>(row: Row, policy: StoredCertificatePolicy, now: string): Row {
  const started = { policy, job: restartedJob(now, row.job), due_at: now };
  // An uploaded certificate is detached immediately; an automatic one serves until it is replaced.
  if (row.policy === null) return { ...row, ...started, certificate_id: null, renews_at: null };
  const isSame = row.policy.private_key_type === policy.private_key_type && row.policy.authority === policy.authority;
  const isFailing = row.job !== null && row.job.error_code !== null;
  if (isSame && !isFailing) return row;
  const order = isSame && row.job?.order ? { order: row.job.order } : {};
  return { ...row, ...started, job: { ...started.job, ...order } };
}

/** Certificates that live for less are renewed after half of their lifetime: an outage of two days must not end them. */
const SHORT_MS = 10 * DAY_MS;

/**
 * When a certificate is renewed: after two thirds of its lifetime, at midnight if it lives for a month or more; after half of a
 * lifetime below ten days.
 */
export function renewalTime(notBefore: string, notAfter: string): string {
  const start = Date.parse(notBefore);
  const lifetimeMs = Date.parse(notAfter) - start;
  const at = start + (lifetimeMs < SHORT_MS ? lifetimeMs / 2 : (lifetimeMs * 2) / 3);
  return timestamp(lifetimeMs < 30 * DAY_MS ? at : at - (at % DAY_MS));
}

/** The latest time of renewal that a CA can ask for, in milliseconds since the Unix epoch: a wrong one must not end a name. */
export function latestRenewal(notBefore: string, notAfter: string): number {
  const [start, end] = [Date.parse(notBefore), Date.parse(notAfter)];
  return start + (end - start) * (end - start < SHORT_MS ? 0.6 : 0.75);
}
