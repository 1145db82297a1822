/** Bytes per second below which a client counts as stalled; a trickle would keep a place for ever. */
const MIN_RATE = 240;

/** Milliseconds of a period. With the interval between two checks, a client is disconnected after about 30 s. */
export const PROGRESS_MS = 25_000;

/** Whether a client that is waited for makes progress: its bytes have to move at a minimum rate in each period. */
export class Progress {
  #since: number;
  #from: number;

  /**
   * @param period milliseconds
   * @param now milliseconds of `performance.now()`
   * @param bytes that have moved so far
   */
  constructor(
    private readonly period: number,
    now: number,
    bytes: number,
  ) {
    this.#since = now;
    this.#from = bytes;
  }

  /** Starts a new period, when the client is not waited for. */
  restart(now: number, bytes: number): void {
    this.#since = now;
    this.#from = bytes;
  }

  /** Whether too few bytes have moved for a whole period in which the client was waited for. */
  isStalled(now: number, bytes: number): boolean {
    if ((bytes - this.#from) * 1000 >= MIN_RATE * this.period) this.restart(now, bytes);
    return now - this.#since >= this.period;
  }
}
