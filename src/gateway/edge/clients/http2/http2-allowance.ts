/**
 * How often a client may do something that costs us more than it: so often at once, and from then on so often a second.
 * A well-behaved client never gets there.
 */
export class Allowance {
  readonly #burst: number;
  readonly #perSecond: number;
  #left: number;
  #countedAt: number;

  /** @param now milliseconds that only grow */
  constructor(burst: number, perSecond: number, now: number) {
    this.#burst = burst;
    this.#perSecond = perSecond;
    this.#left = burst;
    this.#countedAt = now;
  }

  /** Counts one; returns false when it was one too many. */
  take(now: number): boolean {
    const earned = ((now - this.#countedAt) / 1000) * this.#perSecond;
    this.#left = Math.min(this.#burst, this.#left + earned) - 1;
    this.#countedAt = now;
    return this.#left >= 0;
  }
}
