import type { Clock } from '../../lib/clock.ts';
import { refuse } from './refuse.ts';

/** When failed authentications are slowed down. */
export interface FailedAttemptSettings {
  /** Failures of one address within the window that are answered at once. */
  free: number;
  windowMs: number;
  /** Delay of the first failure beyond those; it doubles from one to the next. */
  delayMs: number;
  maxDelayMs: number;
}

/** Addresses remembered at once; an attacker with more of them only finds no delay. */
const MAX_ADDRESSES = 10_000;
/** Answers held back at once: a flood of failures must not pile up sockets. */
const MAX_WAITING = 64;

/** Slows down addresses that keep presenting wrong keys. Requests with a right key are never held back. */
export class FailedAttempts {
  readonly #failures = new Map<string, { count: number; since: number }>();
  #waiting = 0;

  constructor(
    private readonly settings: FailedAttemptSettings,
    private readonly clock: Clock,
  ) {}

  /**
   * Notes a failure and waits as long as its answer has to.
   *
   * @throws {ApiError} 429 when too many answers are held back already
   */
  async slowDown(address: string): Promise<void> {
    const delayMs = this.#delayAfter(this.#note(address));
    if (delayMs === 0) return;
    if (this.#waiting >= MAX_WAITING) {
      const retryAfter = Math.ceil(this.settings.maxDelayMs / 1000);
      throw refuse(429, 226, 'Too many failed authentications.', { retryAfter });
    }
    this.#waiting += 1;
    try {
      await this.clock.sleep(delayMs);
    } finally {
      this.#waiting -= 1;
    }
  }

  #note(address: string): number {
    const now = this.clock.now();
    const known = this.#failures.get(address);
    const recent = known && now - known.since < this.settings.windowMs ? known : { count: 0, since: now };
    recent.count += 1;
    // Taken out and put back, so that the map's first entry is the one that failed longest ago.
    this.#failures.delete(address);
    this.#failures.set(address, recent);
    if (this.#failures.size > MAX_ADDRESSES) this.#forgetOldest();
    return recent.count;
  }

  #forgetOldest(): void {
    for (const address of this.#failures.keys()) {
      this.#failures.delete(address);
      return;
    }
  }

  #delayAfter(failures: number): number {
    const { free, delayMs, maxDelayMs } = this.settings;
    if (failures <= free) return 0;
    return Math.min(maxDelayMs, delayMs * 2 ** Math.min(failures - free - 1, 30));
  }
}
