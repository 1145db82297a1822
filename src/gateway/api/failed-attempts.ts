import { BoundedMap } from '../../lib/bounded-map.ts';
import { clientNetwork } from '../../lib/network/ip-address.ts';
import { backoffCeiling } from '../../lib/time/backoff.ts';
import type { Clock } from '../../lib/time/clock.ts';
import { refuse } from './request.ts';

/** When responses to failed authentications are delayed. */
export interface FailedAttemptSettings {
  /** Failures of one client within the window that are answered without delay. */
  free: number;
  windowMs: number;
  /** Delay of the first failure after those; it doubles with each further failure. */
  delayMs: number;
  maxDelayMs: number;
}

/** Clients tracked at once. An attacker with more addresses is not delayed. */
const MAX_CLIENTS = 10_000;
/** Responses delayed at once: a flood of failures must not pile up sockets. */
const MAX_DELAYED = 64;

/** Delays responses to clients that keep sending wrong API keys. Requests with a valid key are never delayed. */
export class FailedAttempts {
  readonly #failures = new BoundedMap<string, { count: number; since: number }>(MAX_CLIENTS);
  #delayed = 0;

  constructor(
    private readonly settings: FailedAttemptSettings,
    private readonly clock: Clock,
  ) {}

  /**
   * Waits until the response to a failure may be sent. @throws {ApiError} 429 when too many responses are delayed already
   */
  async slowDown(address: string): Promise<void> {
    const delayMs = this.#delayAfter(this.#record(clientNetwork(address)));
    if (delayMs === 0) return;
    if (this.#delayed >= MAX_DELAYED) {
      const retryAfter = Math.ceil(this.settings.maxDelayMs / 1000);
      throw refuse(429, 226, `too many failed authentications; wait ${retryAfter} s`, { retryAfter });
    }
    this.#delayed += 1;
    try {
      await this.clock.sleep(delayMs);
    } finally {
      this.#delayed -= 1;
    }
  }

  #record(client: string): number {
    const now = this.clock.now();
    const known = this.#failures.get(client);
    const recent = known && now - known.since < this.settings.windowMs ? known : { count: 0, since: now };
    recent.count += 1;
    this.#failures.set(client, recent);
    return recent.count;
  }

  #delayAfter(failures: number): number {
    const { free, delayMs, maxDelayMs } = this.settings;
    return failures <= free ? 0 : backoffCeiling(failures - free - 1, { baseMs: delayMs, maxMs: maxDelayMs });
  }
}
