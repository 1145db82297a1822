import { MemoryBudget, type MemoryUser } from '../../lib/memory-budget.ts';

/** The resolution of a window: an admitted request counts at most one slot too long. */
const SLOTS = 60;

/** Each takes some hundred bytes; the least recently used is dropped first. */
const MAX_KEYS = 10_000;

/**
 * The keys of all limits of the process, at most 200 MB: clients can fill one policy's with hundreds of thousands. When it is
 * full, the limit with the most keys drops half of them.
 */
const ALL_KEYS = new MemoryBudget(200_000);

interface Bucket {
  /** Slot times, oldest first, and the number of admitted requests in each. */
  readonly slots: number[];
  readonly counts: number[];
  total: number;
}

export interface RateDecision {
  readonly admitted: boolean;
  /** Milliseconds until the next request may be admitted; 0 when this one was. */
  readonly retryAfterMs: number;
}

/**
 * Limits the number of requests within any window of time, for each key. It counts in slots of a sixtieth of the window
 * and errs on the strict side: no window ever has more.
 */
export class SlidingWindow implements MemoryUser {
  readonly #capacity: number;
  readonly #slotMs: number;
  readonly #buckets = new Map<string, Bucket>();

  constructor(
    capacity: number,
    windowMs: number,
    private readonly allKeys = ALL_KEYS,
  ) {
    this.#capacity = capacity;
    this.#slotMs = windowMs / SLOTS;
  }

  admit(key: string, nowMs: number): RateDecision {
    const slot = Math.floor(nowMs / this.#slotMs);
    const bucket = this.#bucketOf(key, slot);
    forget(bucket, slot - SLOTS);
    if (bucket.total >= this.#capacity) {
      const freed = ((bucket.slots[0] ?? slot) + SLOTS + 1) * this.#slotMs;
      return { admitted: false, retryAfterMs: Math.max(1, freed - nowMs) };
    }
    if (bucket.slots.at(-1) === slot) bucket.counts[bucket.counts.length - 1] = (bucket.counts.at(-1) ?? 0) + 1;
    else {
      bucket.slots.push(slot);
      bucket.counts.push(1);
    }
    bucket.total++;
    return { admitted: true, retryAfterMs: 0 };
  }

  get keys(): number {
    return this.#buckets.size;
  }

  reclaim(): void {
    const oldest = [...this.#buckets.keys()].slice(0, Math.ceil(this.#buckets.size / 2));
    for (const key of oldest) this.#forgetKey(key);
  }

  /** Moves the key's bucket to the end of the map: the first one is always the least recently used. */
  #bucketOf(key: string, slot: number): Bucket {
    this.#dropIdle(slot, this.#buckets.has(key) ? MAX_KEYS : MAX_KEYS - 1);
    const known = this.#buckets.get(key);
    const bucket = known ?? { slots: [], counts: [], total: 0 };
    if (known) this.#buckets.delete(key);
    this.#buckets.set(key, bucket);
    if (!known) this.allKeys.report(this, this.keys);
    return bucket;
  }

  /** Two at a time are enough: each request adds at most one. */
  #dropIdle(slot: number, limit: number): void {
    for (let times = 0; times < 2; times++) {
      const oldest = this.#buckets.entries().next().value;
      if (oldest === undefined) return;
      const [key, bucket] = oldest;
      const isIdle = (bucket.slots.at(-1) ?? 0) < slot - SLOTS;
      if (!isIdle && this.#buckets.size <= limit) return;
      this.#forgetKey(key);
    }
  }

  #forgetKey(key: string): void {
    this.#buckets.delete(key);
    this.allKeys.report(this, this.keys);
  }
}

function forget(bucket: Bucket, before: number): void {
  let gone = 0;
  while (gone < bucket.slots.length && (bucket.slots[gone] ?? 0) < before) bucket.total -= bucket.counts[gone++] ?? 0;
  if (gone === 0) return;
  bucket.slots.splice(0, gone);
  bucket.counts.splice(0, gone);
}
