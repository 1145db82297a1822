import type { MemoryBudget, MemoryUser } from '../lib/memory-budget.ts';

/** Bytes held for streams below this are not reported to the budget. */
const FLOOR = 65_536;
/** Share of the remaining memory that one stream may be granted credit for. */
const STREAM_SHARE = 1 / 8;

/** What the streams of a connection hold in memory, as its budget knows it. */
export class HeldMemory {
  #held = 0;
  #reported = 0;
  #budget: MemoryBudget | null = null;

  /** @param user gives some up when the budget is exceeded */
  constructor(private readonly user: MemoryUser) {}

  /** From now on, it counts against this budget. */
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
  promise(bytes: number): void {
    this.#budget?.reserve(bytes);
  }

  /**
   * Tells the budget.
   *
   * @param unsent bytes that wait in sockets
   */
  report(unsent: number): void {
    const held = this.#held + unsent;
    this.#tell(held < FLOOR ? 0 : held);
  }

  /** The connection has ended. */
  release(): void {
    this.#tell(0);
  }

  #tell(bytes: number): void {
    if (bytes === this.#reported) return;
    this.#reported = bytes;
    this.#budget?.report(this.user, bytes);
  }
}
