import { BoundedMap } from '../bounded-map.ts';

/** How many requests one client may send. */
export interface RateLimit {
  requests: number;
  windowMs: number;
}

/** Clients tracked at once; the one that was let through the longest ago is forgotten first. */
const MAX_CLIENTS = 10_000;

/**
 * Limits the requests of each client: bursts up to the limit, then an even rate. This is the generic cell rate algorithm,
 * which stores one number for each client.
 */
export class RequestRate {
  /** The theoretical arrival time of each client's next request. */
  readonly #nextAt = new BoundedMap<string, number>(MAX_CLIENTS);

  constructor(
    readonly limit: RateLimit,
    private readonly now: () => number,
  ) {}

  /**
   * Counts a request, unless it is refused.
   *
   * @returns null, or the seconds after which a refused request can be repeated
   */
  take(client: string): number | null {
    const { requests, windowMs } = this.limit;
    const now = this.now();
    const next = Math.max(this.#nextAt.get(client) ?? now, now) + windowMs / requests;
    const waitMs = next - now - windowMs;
    if (waitMs > 0) return Math.ceil(waitMs / 1000);
    this.#nextAt.set(client, next);
    return null;
  }
}
