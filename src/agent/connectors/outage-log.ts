import type { Log } from '../../lib/log/log.ts';
import type { Clock } from '../../lib/time/clock.ts';

const MAX_REASONS = 5;
const MINUTE_MS = 60_000;

/** Logs an outage in few lines, however long it lasts: each new reason, and a reminder after 1, 2, 4, 8 … minutes. */
export class OutageLog {
  readonly #reasons = new Set<string>();
  #start: number | null = null;
  #nextReminderMs = MINUTE_MS;

  constructor(
    private readonly clock: Clock,
    private readonly log: Log,
  ) {}

  begin(): void {
    this.#start = this.clock.now();
    this.#nextReminderMs = MINUTE_MS;
    this.#reasons.clear();
  }

  failure(message: string, code: string | null): void {
    const lastedMs = this.#lastedMs();
    const isNew = !this.#reasons.has(message) && this.#reasons.size < MAX_REASONS;
    const due = lastedMs >= this.#nextReminderMs;
    if (!isNew && !due) return;
    this.#reasons.add(message);
    while (lastedMs >= this.#nextReminderMs) this.#nextReminderMs *= 2;
    this.log.warn(
      { reason: message, code, offline_s: Math.round(lastedMs / 1000) },
      'session attempt failed; retrying',
    );
  }

  end(): number {
    const seconds = Math.round(this.#lastedMs() / 100) / 10;
    this.#start = null;
    return seconds;
  }

  #lastedMs(): number {
    return this.#start === null ? 0 : this.clock.now() - this.#start;
  }
}
