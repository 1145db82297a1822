/** Of one processor core. Plain requests take 2 to 4 % of it, as many as there may be. */
const SHARE = 0.2;
/** What may be taken at once, and once more as a debt. */
const BURST_MS = 50;
/** Each step takes far less; what took longer waited for other programs. */
const MAX_STEP_MS = 10;

/**
 * The processor time of all captures together. Who floods an upstream with tiny compressed messages must not delay the
 * connections of others.
 */
export class CaptureTime {
  #left = BURST_MS;
  #at: number;

  /** @param now in milliseconds */
  constructor(private readonly now: () => number = () => performance.now()) {
    this.#at = now();
  }

  /** Call this before the first step: the time since the last one was not spent here. */
  begin(): void {
    const now = this.now();
    this.#earn(now);
    this.#at = now;
  }

  /**
   * Call this after each step.
   *
   * @returns `none`: only what is cheap should go on; `overdrawn`: nothing should
   */
  step(): 'some' | 'none' | 'overdrawn' {
    const now = this.now();
    this.#earn(now);
    this.#left -= Math.min(MAX_STEP_MS, now - this.#at);
    this.#at = now;
    return this.#left > 0 ? 'some' : this.#left > -BURST_MS ? 'none' : 'overdrawn';
  }

  #earn(now: number): void {
    this.#left = Math.min(BURST_MS, this.#left + (now - this.#at) * SHARE);
  }
}
