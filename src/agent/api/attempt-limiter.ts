import { BoundedMap } from '../../lib/bounded-map.ts';
import { type Clock, systemClock } from '../../lib/clock.ts';

/** Wrong attempts a client may make at once, and how long each one counts. */
const BURST = 5;
const INTERVAL_MS = 2_000;
const MAX_CLIENTS = 1_024;

/**
 * Limits how fast one client can guess tokens. Only wrong attempts count. A client over its allowance waits two seconds
 * at most, and until then even the right token is not checked: the response time would reveal it. There is no limit
 * across clients, because it would let guessers lock the owner out; a token of 192 bits is safe from any number of them.
 */
export class AttemptLimiter {
  /** For each client, when all its wrong attempts stop counting. */
  readonly #clients = new BoundedMap<string, number>(MAX_CLIENTS);

  constructor(private readonly clock: Clock = systemClock) {}

  /** Milliseconds until the client may try again; 0 means now. */
  waitFor(client: string): number {
    const until = this.#clients.get(client) ?? 0;
    return Math.max(0, until - this.clock.now() - (BURST - 1) * INTERVAL_MS);
  }

  failed(client: string): void {
    const until = Math.max(this.clock.now(), this.#clients.get(client) ?? 0) + INTERVAL_MS;
    this.#clients.set(client, until);
  }
}
