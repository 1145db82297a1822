/** What a refused action counts. */
const REFUSED_COST = 1 / 4;

/** A token bucket for actions that cost the gateway more than the client. Well-behaved clients never exhaust it. */
export class Allowance {
  readonly #burst: number;
  readonly #perSecond: number;
  #left: number;
  #countedAt: number;

  /** @param now milliseconds of `performance.now()` */
  constructor(burst: number, perSecond: number, now: number) {
    this.#burst = burst;
    this.#perSecond = perSecond;
    this.#left = burst;
    this.#countedAt = now;
  }

  /**
   * Counts one action; returns false when it exceeds the allowance. Refused actions count a quarter, up to one burst: a client
   * that tries much too often gets nothing, but one that repeats what failed, a few times as often as it may, gets its part.
   */
  take(now: number): boolean {
    const earned = ((now - this.#countedAt) / 1000) * this.#perSecond;
    const left = Math.min(this.#burst, this.#left + earned);
    const isTaken = left >= 1;
    this.#left = Math.max(-this.#burst, left - (isTaken ? 1 : REFUSED_COST));
    this.#countedAt = now;
    return isTaken;
  }
}
