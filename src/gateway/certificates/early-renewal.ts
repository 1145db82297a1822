import type { GatewayContext } from '../context/gateway-context.ts';
import type { ManagedDomainRow } from '../store/domains.ts';
import { timestamp } from '../store/store.ts';
import type { CertificateIssuer, RenewalAdvice } from './issuing/certificate-issuer.ts';
import { latestRenewal } from './renewal-schedule.ts';

export interface ManagedTable<Row extends ManagedDomainRow> {
  get(id: string): Row | null;
  managed(): Row[];
  due(now: string, limit: number): Row[];
  overdue(now: string): Row[];
  update(row: Row): void;
}

const HOUR_MS = 3_600_000;
/** Without `Retry-After`, and the limits of one (RFC 9773, section 4.3). */
const ASK_MS = { usual: 6 * HOUR_MS, least: 60_000, most: 24 * HOUR_MS, afterFailure: HOUR_MS };
/** A CA that wants each certificate renewed at once gets one order an hour for each name. */
const LEAST_AGE_MS = HOUR_MS;
/** Certificates asked about in one check, one after the other. */
const PER_CHECK = 20;

/**
 * Asks the CA when certificates should be renewed (RFC 9773), and renews them then: before it revokes one, it says so there. What
 * was asked is not kept: a process that starts asks again.
 */
export class EarlyRenewal<Row extends ManagedDomainRow> {
  /** When to ask about a certificate, by its id. */
  readonly #asks = new Map<string, number>();
  #nextCheck = Number.NEGATIVE_INFINITY;
  #checking: Promise<void> | null = null;

  constructor(
    private readonly context: Pick<GatewayContext, 'store' | 'log'>,
    private readonly own: {
      readonly table: ManagedTable<Row>;
      readonly issuer: CertificateIssuer;
      readonly wallClock: () => number;
      /** Called when the time of a renewal has changed. */
      readonly wake: () => void;
      readonly random?: () => number;
    },
  ) {}

  /** Resolves when the last check is over. */
  get finished(): Promise<void> {
    return this.#checking ?? Promise.resolve();
  }

  /** Asks about the certificates whose time has come, unless that is under way. */
  check(signal: AbortSignal): void {
    const now = this.own.wallClock();
    // A clock that was set back must not end the checks.
    const isEarly = now < this.#nextCheck && this.#nextCheck - now <= ASK_MS.most;
    if (this.own.issuer.renewalAdvice === undefined || this.#checking !== null || isEarly) return;
    this.#checking = this.#check(signal)
      .catch((err) => {
        if (!signal.aborted) this.context.log.warn({ err }, 'renewal times not read from the CA');
      })
      .finally(() => {
        this.#checking = null;
      });
  }

  async #check(signal: AbortSignal): Promise<void> {
    const now = this.own.wallClock();
    const rows = this.own.table.managed().filter(({ certificate_id, job }) => certificate_id !== null && job === null);
    const ids = new Set(rows.map(({ certificate_id }) => certificate_id));
    for (const id of this.#asks.keys()) if (!ids.has(id)) this.#asks.delete(id);
    const due = rows.filter((row) => this.#asksAt(row, now) <= now);
    for (const row of due.slice(0, PER_CHECK)) {
      if (signal.aborted) return;
      this.#asks.set(String(row.certificate_id), now + (await this.#ask(row, signal)));
    }
    const next = Math.min(...rows.map((row) => this.#asksAt(row, now)), now + ASK_MS.least * 10);
    this.#nextCheck = Math.max(next, now + ASK_MS.least);
  }

  #asksAt({ certificate_id }: Row, now: number): number {
    const id = String(certificate_id);
    const known = this.#asks.get(id);
    // A clock that was ahead has left a time that is far away now.
    if (known !== undefined && known - now <= ASK_MS.most) return known;
    const issuedAt = this.context.store.tlsCertificates.get(id)?.issued_at;
    return issuedAt ? Date.parse(issuedAt) + LEAST_AGE_MS : Number.POSITIVE_INFINITY;
  }

  /** @returns milliseconds until the next request to the CA */
  async #ask(row: Row, signal: AbortSignal): Promise<number> {
    const { store, log } = this.context;
    const certificate = store.tlsCertificates.get(String(row.certificate_id));
    if (certificate === null) return ASK_MS.usual;
    let advice: RenewalAdvice | null;
    try {
      advice = (await this.own.issuer.renewalAdvice?.(certificate.certificate_pem, signal)) ?? null;
    } catch (err) {
      if (!signal.aborted) log.debug({ err, domain: row.domain }, 'renewal time not read from the CA');
      return ASK_MS.afterFailure;
    }
    if (advice === null) return ASK_MS.usual;
    const { not_before, not_after } = certificate.facts;
    await this.#follow(row, advice, latestRenewal(not_before, not_after));
    const asked = advice.askAgainS === null ? ASK_MS.usual : advice.askAgainS * 1000;
    return Math.min(ASK_MS.most, Math.max(ASK_MS.least, asked));
  }

  /** Chooses a time in the window, unless the one chosen before is in it (RFC 9773, section 4.2). */
  async #follow(asked: Row, { start, end, why }: RenewalAdvice, latest: number): Promise<void> {
    const { store, log } = this.context;
    const { table, random = Math.random } = this.own;
    const before = asked.renews_at;
    const at = Date.parse(before ?? '');
    if (at >= start - 1000 && at <= end) return;
    const renews_at = timestamp(Math.min(start + random() * (end - start), latest));
    if (renews_at === before) return;
    const isChanged = await store.database.write(() => {
      const row = table.get(asked.id);
      if (!row || row.job !== null || row.certificate_id !== asked.certificate_id || row.policy === null) return false;
      table.update({ ...row, renews_at, due_at: renews_at });
      return true;
    });
    if (!isChanged) return;
    log.info({ domain: asked.domain, renews_at, before, why }, 'renewal moved as the CA asks');
    this.own.wake();
  }
}
