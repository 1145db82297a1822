/** Credited bytes that make a transfer bulk. Below, it would not make up for the slow start of another TCP connection. */
const BULK = 1_048_576;
/** After so many milliseconds without credit, the next is that of another transfer. */
const QUIET_MS = 1000;
/** A transfer is long once it has been bulk for so many round trips and milliseconds. */
const LONG_ROUND_TRIPS = 10;
const LONG_MS = 500;

/** Detects bulk in one direction of a stream, by the credit that was given for it. */
export class BulkMeter {
  #bytes = 0;
  #creditedAt = Number.NEGATIVE_INFINITY;
  #bulkSince = 0;

  /** @param now in milliseconds of `performance.now()` */
  credit(bytes: number, now: number): void {
    if (now - this.#creditedAt > QUIET_MS) this.#bytes = 0;
    this.#creditedAt = now;
    if (!this.isBulk) this.#bulkSince = now;
    this.#bytes += bytes;
  }

  get isBulk(): boolean {
    return this.#bytes >= BULK;
  }

  /**
   * Whether the transfer will probably take long enough to make up for a slow start.
   *
   * @param roundTrip milliseconds; null: not known
   * @param share of the time that makes it long
   */
  isLong(now: number, roundTrip: number | null, share = 1): boolean {
    return this.isBulk && now - this.#bulkSince > share * Math.max(LONG_MS, LONG_ROUND_TRIPS * (roundTrip ?? 0));
  }
}
