import { type Clock, systemClock } from '../../lib/clock.ts';
import { RecentMap } from '../../lib/recent-map.ts';

/** Wrong attempts that go through at once, and how long each takes to be forgotten. */
const BURST = 5;
const INTERVAL_MS = 2_000;
const MAX_CLIENTS = 1_024;

/**
 * Bounds how fast one client can guess tokens. Only wrong attempts count; while a client is over its allowance its
 * attempts are not looked at, right or wrong, or else the answer's speed would tell. Whoever shares an address with
 * a guesser waits two seconds at most for the next look. There is no limit over all clients: it would lock the owner
 * out for as long as many guess, and no number of them gets anywhere with a token of 192 bits.
 */
export class AttemptLimiter {
  /** Per client the time at which all its wrong attempts will be forgotten. */
  readonly #clients = new RecentMap<string, number>(MAX_CLIENTS);

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
