import { withDeadline } from '../../lib/time/deadline.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import type { ManagedDomainRow, StoredCertificatePolicy } from '../store/domains.ts';
import type { Store } from '../store/store.ts';
import { discardManaged, requestOverdueRevocations } from './certificate-errands.ts';
import { readUploadedPair } from './certificate-upload.ts';
import { EarlyRenewal, type ManagedTable } from './early-renewal.ts';
import {
  type BegunOrder,
  type CertificateIssuer,
  type IssuedCertificate,
  IssueError,
  type IssueRequest,
} from './issuing/certificate-issuer.ts';
import { isPlausible } from './local-ca/certificate-validity.ts';
import { afterSetBack, failedJob, freshJob, renewalDue, renewalTime } from './renewal-schedule.ts';

const MAX_RUNNING = 4;
/** An ACME order takes minutes at most, with its DNS propagation. */
const ISSUE_TIMEOUT_MS = 5 * 60_000;
/** Interval of checks. The wall clock may jump, by years on a Pi without a clock battery. */
const CHECK_INTERVAL_MS = 60_000;

/** Obtains and renews certificates. All state is in the store (`due_at`, `job`): a restart continues where it stopped. */
export class CertificateRenewal<Row extends ManagedDomainRow> {
  readonly #running = new Map<string, { row: Row; abort: AbortController; done: Promise<void> }>();
  readonly #stopping = new AbortController();
  #nap = new AbortController();
  #loop: Promise<void> | null = null;
  readonly #early: EarlyRenewal<Row>;
  /** Offset of the wall clock from the monotonic clock; null before the first check. */
  #ahead: number | null = null;

  /** @param wallClock milliseconds since the Unix epoch; the clock that the store was opened with */
  constructor(
    private readonly context: Pick<GatewayContext, 'store' | 'activity' | 'clock' | 'log'>,
    private readonly domains: ManagedTable<Row>,
    private readonly issuer: CertificateIssuer,
    private readonly wallClock = Date.now,
  ) {
    this.#early = new EarlyRenewal(context, { table: domains, issuer, wallClock, wake: () => this.wake() });
  }

  start(): void {
    this.#loop ??= this.#run();
  }

  /** Checks the domains now: a policy was set, changed or detached. */
  wake(): void {
    this.#nap.abort();
  }

  /** Aborts running orders; they start again with the next start of the process. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    for (const { abort } of this.#running.values()) abort.abort();
    this.wake();
    await Promise.all([this.#loop, this.#early.finished, ...[...this.#running.values()].map(({ done }) => done)]);
  }

  async #run(): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      this.#nap = new AbortController();
      try {
        await this.#handleClockSetBack();
        await this.#revokeOverdue();
        this.#cancelUnwanted();
        this.#startDue();
        this.#early.check(this.#stopping.signal);
      } catch (error) {
        this.context.log.error({ err: error }, 'certificate check failed');
      }
      await this.#sleep(this.#nap.signal);
    }
  }

  async #sleep(signal: AbortSignal): Promise<void> {
    try {
      await this.context.clock.sleep(CHECK_INTERVAL_MS, signal);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /** A clock that was ahead, in this process or an earlier one, has left dates that are years away now. */
  async #handleClockSetBack(): Promise<void> {
    const now = this.wallClock();
    const ahead = now - this.context.clock.now();
    if (!isPlausible(now)) return;
    if (this.#ahead === null || ahead < this.#ahead - CHECK_INTERVAL_MS) await this.#resetFutureDates(now);
    this.#ahead = ahead;
  }

  async #resetFutureDates(now: number): Promise<void> {
    const { store, log } = this.context;
    const { domains, issuer } = this;
    const corrected = (row: Row) => {
      const certificate = row.certificate_id === null ? null : store.tlsCertificates.get(row.certificate_id);
      return afterSetBack(row, now, issuer.usesOurClock ? (certificate?.facts.not_before ?? null) : null);
    };
    const waiting = domains.managed().filter((row) => !this.#running.has(row.id) && corrected(row) !== row);
    if (waiting.length === 0) return;
    await store.database.write(() => {
      for (const { id } of waiting) {
        const row = domains.get(id);
        if (row) domains.update(corrected(row));
      }
    });
    log.warn({ names: waiting.length }, 'clock set back; certificate dates reset');
  }

  async #revokeOverdue(): Promise<void> {
    const { store, log } = this.context;
    const domains = await requestOverdueRevocations(store, this.domains);
    for (const domain of domains) log.warn({ domain }, 'leaked certificate revoked before there is another one');
  }

  #cancelUnwanted(): void {
    for (const [id, { row, abort }] of this.#running) {
      if (!isSameOrder(this.domains.get(id), row)) abort.abort();
    }
  }

  #startDue(): void {
    const { store } = this.context;
    const { domains } = this;
    // An issued certificate could not be stored, and would be ordered again and again.
    if (store.box.refusal !== null) return;
    // Running orders are still due, and may fill the query's limit.
    const due = domains.due(store.now(), MAX_RUNNING + this.#running.size);
    for (const { id } of due) {
      if (this.#running.size >= MAX_RUNNING) return;
      if (!this.#running.has(id)) this.#startOne(id);
    }
  }

  #startOne(id: string): void {
    const { log } = this.context;
    const { domains } = this;
    const row = domains.get(id);
    if (!row?.policy) return;
    const abort = new AbortController();
    const done = this.#provision(row, row.policy, abort.signal)
      .catch(async (error: unknown) => {
        log.error({ err: error, domain: row.domain }, 'certificate job failed');
        // Nothing was recorded, so it is due at once: on a full disk, it would be ordered without end.
        await this.#sleep(abort.signal);
      })
      .finally(() => {
        // The order may still be running after its deadline.
        abort.abort();
        this.#running.delete(id);
        this.wake();
      });
    this.#running.set(id, { row, abort, done });
  }

  async #provision(found: Row, policy: StoredCertificatePolicy, signal: AbortSignal): Promise<void> {
    const row = await this.#begin(found);
    const running = this.#running.get(row.id);
    if (running) running.row = row;
    try {
      signal.throwIfAborted();
      const request = this.#requestFor(row, policy);
      const order = unlessAborted(this.issuer.issue(request, signal), signal);
      await this.#succeed(row, await withDeadline(order, 'issuing the certificate', ISSUE_TIMEOUT_MS));
    } catch (error) {
      if (!signal.aborted) await this.#fail(row, error);
    }
  }

  /** Records the job before it is ordered: a certificate that cannot be stored would be ordered again. */
  async #begin(found: Row): Promise<Row> {
    const job = found.job ?? freshJob(this.context.store.now());
    await this.#change(found, (row) => ({ ...row, job }));
    return { ...found, job };
  }

  #requestFor(row: Row, { private_key_type: privateKeyType }: StoredCertificatePolicy): IssueRequest {
    const { store } = this.context;
    const current = row.certificate_id === null ? null : store.tlsCertificates.get(row.certificate_id);
    return {
      ...{ domain: row.domain, privateKeyType, replaces: current?.certificate_pem ?? null },
      begun: begunOrder(row, store.box),
      keep: async ({ authority, url, privateKeyPem }) => {
        const order = { authority, url, key: store.box.seal(privateKeyPem, row.id).toString('base64') };
        await this.#change(row, (now) => (now.job === null ? now : { ...now, job: { ...now.job, order } }));
      },
    };
  }

  async #succeed(ordered: Row, issued: IssuedCertificate): Promise<void> {
    const { store, log, activity } = this.context;
    const { leaf, key } = readUploadedPair(issued.certificatePem, issued.privateKeyPem);
    // Loaded on first use: its library takes 7 MB of memory.
    const { certificateFacts } = await import('./certificate-facts.ts');
    const facts = certificateFacts(leaf, key);
    const renews_at = renewalTime(facts.not_before, facts.not_after);
    const stored = await this.#change(ordered, (row) => {
      const now = store.now();
      const id = store.ids.next('cert');
      const common = { id, created_at: now, description: null, metadata: null, issued_at: now };
      const certificate_pem = issued.certificatePem;
      store.tlsCertificates.insertWithKey({ ...common, certificate_pem, facts }, issued.privateKeyPem);
      return { ...row, certificate_id: id, renews_at, job: null, due_at: renewalDue(renews_at, this.wallClock()) };
    });
    if (!stored) return;
    const { domain, certificate_id } = ordered;
    log.info({ domain, renews_at }, 'certificate issued');
    const { remark } = issued;
    if (remark) log.warn({ domain, remark }, 'certificate issued with other terms than set');
    activity.note('certificate_issued.v0', () => ({ domain, renewal: certificate_id !== null, renews_at }));
  }

  async #fail(ordered: Row, error: unknown): Promise<void> {
    const { log, store, activity } = this.context;
    const known = error instanceof IssueError ? error : internalError(error);
    let retries_at: string | null = null;
    const stored = await this.#change(ordered, (row) => {
      if (!row.job) return row;
      const job = failedJob(row.job, known, this.wallClock());
      retries_at = job.retries_at;
      return { ...row, job, due_at: retries_at };
    });
    if (!stored) return;
    const { domain, certificate_id } = ordered;
    // The current certificate stays in use, even after it has expired.
    const current = certificate_id === null ? null : store.tlsCertificates.get(certificate_id);
    const expires_at = current?.facts.not_after ?? null;
    log.warn({ err: error, domain, error_code: known.code, retries_at, expires_at }, 'certificate not issued');
    const { code: error_code, message: msg } = known;
    activity.note('certificate_failed.v0', () => ({ domain, error_code, msg, retries_at, expires_at }));
  }

  /** Writes the outcome of an order; returns false when the domain has changed meanwhile. */
  #change(ordered: Row, next: (row: Row) => Row): Promise<boolean> {
    const { store } = this.context;
    const { domains } = this;
    return store.database.write(() => {
      const row = domains.get(ordered.id);
      if (!row || !isSameOrder(row, ordered)) return false;
      const changed = next(row);
      domains.update(changed);
      if (row.certificate_id !== changed.certificate_id) discardManaged(store, row);
      return true;
    });
  }
}

/** The order that an earlier process has begun; null when its key was encrypted with an encryption key that was changed. */
function begunOrder({ id, job }: ManagedDomainRow, box: Store['box']): BegunOrder | null {
  const { order } = job ?? {};
  if (order === undefined) return null;
  const sealed = Buffer.from(order.key, 'base64');
  const { authority, url } = order;
  return box.opens(sealed, id) ? { authority, url, privateKeyPem: box.open(sealed, id) } : null;
}

function isSameOrder(row: ManagedDomainRow | null, ordered: ManagedDomainRow): boolean {
  return (
    row?.policy?.private_key_type === ordered.policy?.private_key_type &&
    row?.job?.started_at === ordered.job?.started_at
  );
}

function internalError(cause: unknown): IssueError {
  return new IssueError(
    'INTERNAL_ERROR',
    'The certificate could not be issued because of an internal error; the gateway will retry.',
    { cause },
  );
}

/** Rejects when the signal aborts: not every order can be cancelled. */
function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { once: true });
    promise.then(resolve, reject);
  });
}
