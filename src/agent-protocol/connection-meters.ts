import type { MemoryBudget, MemoryUser } from '../lib/memory-budget.ts';

/** A route can change: after this long, in milliseconds, the least round trip is measured again. */
const MEMORY_MS = 30_000;

/** The least round trip of a connection. Samples hold queues and the peer's delays too, so only the least one counts. */
export class RoundTrip {
  #recent = Number.POSITIVE_INFINITY;
  #earlier = Number.POSITIVE_INFINITY;
  #since = 0;

  /** In milliseconds; null as long as nothing was measured. */
  get least(): number | null {
    const least = Math.min(this.#recent, this.#earlier);
    return Number.isFinite(least) ? least : null;
  }

  /** @param now in milliseconds of `performance.now()` */
  add(ms: number, now: number): void {
    if (now - this.#since > MEMORY_MS) {
      this.#earlier = this.#recent;
      this.#recent = ms;
      this.#since = now;
    }
    this.#recent = Math.min(this.#recent, ms);
  }
}

/** On shorter links, bytes count for as long as on one with this round trip, in milliseconds. */
const LEAST_MS = 100;
/** What was on its way counts for so long after nothing has arrived: lost packets hold up all that follows them. */
const STALL_MS = 1000;

/** About how many bytes are on their way: the most that went by in a round trip of the last second. */
export class RecentBytes {
  #recent = 0;
  #since = 0;
  #most = 0;
  #mostAt = 0;

  constructor(private readonly roundTrip: RoundTrip) {}

  /** @param now in milliseconds of `performance.now()` */
  add(bytes: number, now: number): void {
    this.#recent = this.#advance(now) + bytes;
  }

  at(now: number): number {
    return Math.max(this.#advance(now), this.#most);
  }

  #advance(now: number): number {
    const ms = Math.max(LEAST_MS, this.roundTrip.least ?? 0);
    const end = this.#since + ms;
    if (now < end) return this.#recent;
    if (this.#recent >= this.#most || end - this.#mostAt >= STALL_MS + ms) {
      this.#most = this.#recent;
      this.#mostAt = end;
    }
    if (now - this.#mostAt >= STALL_MS + ms) this.#most = 0;
    this.#recent = 0;
    this.#since = now;
    return 0;
  }
}

/** Bytes held for streams below this are not reported to the budget. */
const FLOOR = 65_536;
/** Share of the remaining memory that one stream may be granted credit for. */
const STREAM_SHARE = 1 / 8;

/** What the streams of a connection hold in memory, as its budget knows it. */
export class StreamMemory {
  #held = 0;
  #reported = 0;
  #budget: MemoryBudget | null = null;

  constructor(private readonly user: MemoryUser) {}

  limit(budget: MemoryBudget): void {
    this.#budget = budget;
  }

  /** Bytes that one stream may be granted credit for. */
  get room(): number {
    return (this.#budget?.room ?? 0) * STREAM_SHARE;
  }

  /** Counts bytes that a stream holds from now on, or no longer. */
  add(bytes: number): void {
    this.#held += bytes;
  }

  /** Counts bytes that the peer may send from now on beyond the window of the protocol, or no longer. */
  reserve(bytes: number): void {
    this.#budget?.reserve(bytes);
  }

  /** @param unsent bytes that wait in sockets */
  report(unsent: number): void {
    const held = this.#held + unsent;
    this.#tell(held < FLOOR ? 0 : held);
  }

  release(): void {
    this.#tell(0);
  }

  #tell(bytes: number): void {
    if (bytes === this.#reported) return;
    this.#reported = bytes;
    this.#budget?.report(this.user, bytes);
  }
}
