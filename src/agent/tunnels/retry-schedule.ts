import { ApiError } from '../../lib/errors.ts';
import { type BackoffPolicy, backoffCeiling, backoffDelay } from '../../lib/time/backoff.ts';
import type { Clock } from '../../lib/time/clock.ts';
import { DeadlineExceeded } from '../../lib/time/deadline.ts';

const RETRY: BackoffPolicy = { baseMs: 500, maxMs: 30_000 };
/** How long other tunnels go first after one attempt without an answer; doubles with each further one. */
const YIELD_MS = 1000;

/** When one tunnel may try to bind again. */
export class RetrySchedule {
  #failures = 0;
  /** Attempts in a row that the gateway never answered, over all sessions. */
  #unanswered = 0;

  constructor(private readonly random: () => number) {}

  get hasFailed(): boolean {
    return this.#failures > 0;
  }

  /** Forgets earlier failures, because the next attempt may well succeed. */
  reset(): void {
    this.#failures = 0;
  }

  /** Counts a failure, and returns the milliseconds to wait after it. */
  nextDelayMs(): number {
    return backoffDelay(this.#failures++, RETRY, this.random);
  }

  bound(): void {
    this.#unanswered = 0;
  }

  bindFailed(error: unknown): void {
    if (!(error instanceof ApiError)) return;
    if (error.cause instanceof DeadlineExceeded) this.#unanswered++;
    else if (error.code !== 'ERR_AGENT_OFFLINE') this.#unanswered = 0;
  }

  /**
   * Milliseconds to let other tunnels go first. An attempt without an answer costs the whole session: if it came first
   * on every new session, the tunnels after it would never come up.
   */
  get yieldMs(): number {
    return this.#unanswered === 0 ? 0 : backoffCeiling(this.#unanswered - 1, { baseMs: YIELD_MS, maxMs: RETRY.maxMs });
  }
}

/** The one wait that a loop is in, which others can end early. */
export class InterruptibleWait {
  #interrupt: () => void = () => {};

  constructor(private readonly clock: Clock) {}

  interrupt(): void {
    this.#interrupt();
  }

  async sleep(ms: number): Promise<void> {
    const waiting = new AbortController();
    this.#interrupt = () => waiting.abort();
    await this.clock.sleep(ms, waiting.signal).catch((reason: unknown) => {
      if (!waiting.signal.aborted) throw reason;
    });
  }

  /** @returns what the promise resolves with; null when interrupted first */
  until<T>(promise: Promise<T>): Promise<T | null> {
    return new Promise((resolve) => {
      this.#interrupt = () => resolve(null);
      void promise.then(resolve);
    });
  }

  async untilInterrupted(): Promise<void> {
    await this.until(new Promise<never>(() => {}));
  }
}
