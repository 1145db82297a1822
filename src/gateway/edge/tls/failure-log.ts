import type { Log } from '../../../lib/log/log.ts';

const INTERVAL_MS = 60_000;

/** Logs failed TLS connections at most once a minute: a broken certificate fails at every connection, and anyone may connect. */
export class FailureLog {
  #failures = 0;
  #loggedAt = Number.NEGATIVE_INFINITY;

  constructor(private readonly log: Log) {}

  report(error: unknown): void {
    this.#failures += 1;
    const now = performance.now();
    if (now - this.#loggedAt < INTERVAL_MS) return;
    this.log.error({ err: error, failures: this.#failures }, 'TLS connection failed');
    this.#loggedAt = now;
    this.#failures = 0;
  }
}
