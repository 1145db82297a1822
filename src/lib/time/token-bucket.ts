import { BoundedMap } from '../bounded-map.ts';

/** What a bucket grants. Its tokens are what the caller counts: requests, bytes, milliseconds of a processor. */
export interface BucketRate {
  /** Tokens that can be taken at once after a pause. */
  readonly burst: number;
  /** Tokens that come back in a millisecond. */
  readonly perMs: number;
  /** What is taken beyond this debt is not counted. Default: no limit. */
  readonly maxDebt?: number;
}

/**
 * A token bucket that fills with time. Every limit of a rate is one: of requests, frames, wrong attempts and processor time.
 * Times are milliseconds of a clock that only goes forward.
 */
export class TokenBucket {
  #left: number;
  #at: number;

  constructor(
    private readonly rate: BucketRate,
    now: number,
  ) {
    this.#left = rate.burst;
    this.#at = now;
  }

  /** Tokens that are left; below zero, they are owed. */
  left(now: number): number {
    this.#left = Math.min(this.rate.burst, this.#left + Math.max(0, now - this.#at) * this.rate.perMs);
    this.#at = now;
    return this.#left;
  }

  /** Takes tokens whether they are left or not. */
  take(tokens: number, now: number): void {
    this.#left = Math.max(-(this.rate.maxDebt ?? Number.POSITIVE_INFINITY), this.left(now) - tokens);
  }

  /**
   * Takes one token.
   *
   * @param refusedCost what is taken instead when it is not left: who tries much too often then gets nothing
   * @returns false when it is not left
   */
  tryTake(now: number, refusedCost = 0): boolean {
    const isLeft = this.left(now) >= 1;
    this.take(isLeft ? 1 : refusedCost, now);
    return isLeft;
  }

  /** Milliseconds until so many tokens are left; 0 when they are. */
  waitMs(level: number, now: number): number {
    return Math.max(0, (level - this.left(now)) / this.rate.perMs);
  }
}

/** More than anybody uses at the same time. */
const MAX_BUCKETS = 10_000;

/** A bucket for each client, authtoken, or whatever the keys are. The one that was used the longest ago is forgotten first. */
export class TokenBuckets {
  readonly #buckets: BoundedMap<string, TokenBucket>;

  constructor(
    private readonly rate: BucketRate,
    max = MAX_BUCKETS,
  ) {
    this.#buckets = new BoundedMap(max);
  }

  of(key: string, now: number): TokenBucket {
    const bucket = this.#buckets.get(key) ?? new TokenBucket(this.rate, now);
    this.#buckets.set(key, bucket);
    return bucket;
  }
}

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
  /** Undoes a {@link take} for a request that does not count after all. */
  giveBack(client: string): void {
    const now = this.now();
    this.#clients.of(client, now).take(-1, now);
  }
}
