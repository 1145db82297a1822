export interface CircuitOptions {
  /** Share of failures, 0 to 1, at which it opens. */
  readonly errorThreshold: number;
  /** Requests within the window below which it never opens. */
  readonly volumeThreshold: number;
  readonly windowMs: number;
  readonly trippedMs: number;
}

const BUCKETS = 10;

interface Counts {
  slot: number;
  requests: number;
  failures: number;
}

/** A circuit breaker over a rolling window. After it was open for a while it lets one request through to probe. */
export class Circuit {
  readonly #options: CircuitOptions;
  readonly #counts: Counts[] = Array.from({ length: BUCKETS }, () => ({ slot: -1, requests: 0, failures: 0 }));
  /** When it opened, or when the last probe was let through; null while it is closed. */
  #openSince: number | null = null;
  /** Counts the times that it opened, closed or probed: outcomes of requests from before tell nothing new. */
  #era = 0;

  constructor(options: CircuitOptions) {
    this.#options = options;
  }

  /**
   * Asks whether a request may go to the upstream. A probe whose outcome is not recorded counts as lost
   * after some time, and another one is let through.
   *
   * @returns what its outcome is to be recorded with; null when it may not
   */
  admit(nowMs: number): number | null {
    if (this.#openSince === null) return this.#era;
    if (nowMs - this.#openSince < this.#options.trippedMs) return null;
    this.#openSince = nowMs;
    return ++this.#era;
  }

  /** @param ticket as {@link admit} returned it */
  record(ticket: number, failed: boolean, nowMs: number): void {
    if (ticket !== this.#era) return;
    if (this.#openSince !== null) {
      // Only a probe has a ticket of the present era while it is open.
      if (failed) this.#open(nowMs);
      else this.#close();
      return;
    }
    const counts = this.#current(nowMs);
    counts.requests++;
    if (failed) counts.failures++;
    if (failed && this.#isFailing(nowMs)) this.#open(nowMs);
  }

  #open(nowMs: number): void {
    this.#openSince = nowMs;
    this.#era++;
  }

  #close(): void {
    this.#openSince = null;
    this.#era++;
    for (const counts of this.#counts) counts.slot = -1;
  }

  #current(nowMs: number): Counts {
    const slot = this.#slot(nowMs);
    const counts = this.#counts[slot % BUCKETS] as Counts;
    if (counts.slot !== slot) Object.assign(counts, { slot, requests: 0, failures: 0 });
    return counts;
  }

  #isFailing(nowMs: number): boolean {
    const oldest = this.#slot(nowMs) - BUCKETS;
    let requests = 0;
    let failures = 0;
    for (const counts of this.#counts) {
      if (counts.slot <= oldest) continue;
      requests += counts.requests;
      failures += counts.failures;
    }
    return requests >= this.#options.volumeThreshold && failures / requests >= this.#options.errorThreshold;
  }

  #slot(nowMs: number): number {
    return Math.floor(nowMs / (this.#options.windowMs / BUCKETS));
  }
}
