import type { Clock } from '../../lib/clock.ts';
import { clientNetwork } from '../../lib/ip-address.ts';
import { RecentMap } from '../../lib/recent-map.ts';
import { refuse } from './refuse.ts';

/** When failed authentications are slowed down. */
export interface FailedAttemptSettings {
  /** Failures of one client within the window that are answered at once. */
  free: number;
  windowMs: number;
  /** Delay of the first failure beyond those; it doubles from one to the next. */
  delayMs: number;
  maxDelayMs: number;
}

/** Clients remembered at once; an attacker who is more of them only finds no delay. */
const MAX_CLIENTS = 10_000;
/** Answers held back at once: a flood of failures must not pile up sockets. */
const MAX_WAITING = 64;

/** Slows down clients that keep presenting wrong keys. Requests with a right key are never held back. */
export class FailedAttempts {
  readonly #failures = new RecentMap<string, { count: number; since: number }>(MAX_CLIENTS);
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
    const delayMs = this.#delayAfter(this.#note(clientNetwork(address)));
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

  #note(client: string): number {
    const now = this.clock.now();
    const known = this.#failures.get(client);
    const recent = known && now - known.since < this.settings.windowMs ? known : { count: 0, since: now };
    recent.count += 1;
    this.#failures.set(client, recent);
    return recent.count;
  }

  #delayAfter(failures: number): number {
    const { free, delayMs, maxDelayMs } = this.settings;
    if (failures <= free) return 0;
    return Math.min(maxDelayMs, delayMs * 2 ** Math.min(failures - free - 1, 30));
  }
}
