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
   * Counts one action; returns false when it exceeds the allowance. Refused actions count too, up to one burst: a client
   * that never pauses gets nothing, but is not refused long after it has stopped.
   */
  take(now: number): boolean {
    const earned = ((now - this.#countedAt) / 1000) * this.#perSecond;
    const left = Math.min(this.#burst, this.#left + earned) - 1;
    this.#left = Math.max(-this.#burst, left);
    this.#countedAt = now;
    return left >= 0;
  }
}
