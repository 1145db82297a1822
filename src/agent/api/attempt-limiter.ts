import { BoundedMap } from '../../lib/bounded-map.ts';
import { type Clock, systemClock } from '../../lib/time/clock.ts';

/** Wrong attempts of a client that get an ordinary answer, and how long each one counts. */
const BURST = 5;
const INTERVAL_MS = 2_000;
const MAX_CLIENTS = 1_024;

/**
 * Finds clients that guess tokens, by their wrong attempts. The right token always works, even from an address that others
 * guess from. So a guesser learns of each token whether it is right; 192 bits are safe from any number of guesses.
 */
export class AttemptLimiter {
  /** For each client, when all its wrong attempts stop counting. */
  readonly #clients = new BoundedMap<string, number>(MAX_CLIENTS);

  constructor(private readonly clock: Clock = systemClock) {}

  /** Milliseconds until another wrong attempt gets an ordinary answer; 0 means now. */
  waitFor(client: string): number {
    const until = this.#clients.get(client) ?? 0;
    return Math.max(0, until - this.clock.now() - (BURST - 1) * INTERVAL_MS);
  }

  failed(client: string): void {
    const until = Math.max(this.clock.now(), this.#clients.get(client) ?? 0) + INTERVAL_MS;
    this.#clients.set(client, until);
  }
}
