import { TokenBuckets } from './token-bucket.ts';

/** How many requests one client may send. */
export interface RateLimit {
  requests: number;
  windowMs: number;
}

/** Limits the requests of each client: bursts up to the limit, then an even rate. */
export class RequestRate {
  readonly #clients: TokenBuckets;

  /** @param now milliseconds that only grow */
  constructor(
    { requests, windowMs }: RateLimit,
    private readonly now: () => number,
  ) {
    this.#clients = new TokenBuckets({ burst: requests, perMs: requests / windowMs });
  }

  /**
   * Counts a request, unless it is refused.
   *
   * @returns null, or the seconds after which a refused request can be repeated
   */
  take(client: string): number | null {
    const now = this.now();
    const bucket = this.#clients.of(client, now);
    return bucket.tryTake(now) ? null : Math.ceil(bucket.waitMs(1, now) / 1000);
  }
}
