/** A route can change: after this long, in milliseconds, the least round trip is measured again. */
const MEMORY_MS = 30_000;

/** The least round trip of a connection. Samples hold queues and the peer's delays too, so only the least one counts. */
export class RoundTrip {
  #recent = Number.POSITIVE_INFINITY;
  #earlier = Number.POSITIVE_INFINITY;
  #since = 0;

  /** In milliseconds; null as long as nothing was measured. */
  get least(): number | null {
    const least = Math.min(this.#recent, this.#earlier);
    return Number.isFinite(least) ? least : null;
  }

  /** @param now in milliseconds of `performance.now()` */
  add(ms: number, now: number): void {
    if (now - this.#since > MEMORY_MS) {
      this.#earlier = this.#recent;
      this.#recent = ms;
      this.#since = now;
    }
    this.#recent = Math.min(this.#recent, ms);
  }
}

/** On shorter links, bytes count for as long as on one with this round trip, in milliseconds. */
const LEAST_MS = 100;

/** About how many bytes are on their way: those that went by in the last one to two round trips. */
export class RecentBytes {
  #recent = 0;
  #earlier = 0;
  #since = 0;

  constructor(private readonly roundTrip: RoundTrip) {}

  /** @param now in milliseconds of `performance.now()` */
  add(bytes: number, now: number): void {
    this.#recent = this.#advance(now) + bytes;
  }

  at(now: number): number {
    return this.#advance(now) + this.#earlier;
  }

  #advance(now: number): number {
    const age = now - this.#since;
    const ms = Math.max(LEAST_MS, this.roundTrip.least ?? 0);
    if (age >= ms) {
      this.#earlier = age < 2 * ms ? this.#recent : 0;
      this.#recent = 0;
      this.#since = now;
    }
    return this.#recent;
  }
}
