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
