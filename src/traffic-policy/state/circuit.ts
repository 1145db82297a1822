const BUCKETS = 10;

interface Counts {
  slot: number;
  requests: number;
  failures: number;
}

/** A circuit breaker over a rolling window. After some time open, it admits one request as a probe. */
export class Circuit {
  readonly #counts: Counts[] = Array.from({ length: BUCKETS }, () => ({ slot: -1, requests: 0, failures: 0 }));
  /** When it opened, or admitted the last probe; null while it is closed. */
  #openSince: number | null = null;
  /** Counts how often it opened, closed or probed: outcomes of requests from earlier eras are ignored. */
  #era = 0;

  constructor(
    private readonly options: {
      /** Share of failures, 0 to 1, at which it opens; at 0 a single failure opens it. */
      readonly errorThreshold: number;
      /** Requests within the window below which it never opens. */
      readonly volumeThreshold: number;
      readonly windowMs: number;
      readonly trippedMs: number;
    },
  ) {}

  /**
   * A ticket for recording the outcome; null when the request must not go. When the outcome of a probe is not recorded in
   * time, another request becomes the probe.
   */
  admit(nowMs: number): number | null {
    if (this.#openSince === null) return this.#era;
    if (nowMs - this.#openSince < this.options.trippedMs) return null;
    this.#openSince = nowMs;
    return ++this.#era;
  }

  record(ticket: number, failed: boolean, nowMs: number): void {
    if (ticket !== this.#era) return;
    if (this.#openSince !== null) {
      // While open, only a probe has a ticket of the current era.
      if (failed) this.#open(nowMs);
      else this.#close();
      return;
    }
    const counts = this.#current(nowMs);
    counts.requests++;
    if (failed) counts.failures++;
    if (this.#isFailing(nowMs)) this.#open(nowMs);
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
    const { volumeThreshold, errorThreshold } = this.options;
    return failures > 0 && requests >= volumeThreshold && failures / requests >= errorThreshold;
  }

  #slot(nowMs: number): number {
    return Math.floor(nowMs / (this.options.windowMs / BUCKETS));
  }
}
