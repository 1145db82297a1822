interface Mark {
  readonly at: number;
  readonly total: number;
  readonly failed: number;
}

/** How many of the latest things there were, and how many of them have failed. */
export interface RecentCounts {
  readonly total: number;
  readonly failed: number;
}

const NONE: RecentCounts = { total: 0, failed: 0 };

/**
 * Counts the latest of many things, of which some fail, from what else counts all of them: only failures cost time, and each
 * object has two marks at most.
 */
export class RecentFailures {
  #earlier: Mark | null = null;
  #latest: Mark | null = null;

  constructor(private readonly windowMs: number) {}

  /** @param total all there ever were, this one included; so is `failed` @param now milliseconds that never go back */
  add(total: number, failed: number, now: number): void {
    const latest = this.#latest;
    if (latest !== null && now - latest.at < this.windowMs / 2) return;
    this.#earlier = latest;
    this.#latest = { at: now, total: total - 1, failed: failed - 1 };
  }

  /** Those of the last minutes, counted from a failure; none when nothing has failed meanwhile. */
  counts(total: number, failed: number, now: number): RecentCounts {
    const since = [this.#earlier, this.#latest].find((mark) => mark !== null && now - mark.at < this.windowMs);
    return since ? { total: total - since.total, failed: failed - since.failed } : NONE;
  }
}
