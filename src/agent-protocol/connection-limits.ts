import type { MemoryBudget, MemoryUser } from '../lib/memory-budget.ts';
import type { BucketRate } from '../lib/time/token-bucket.ts';

export interface ConnectionLimits {
  /** Streams that it may have open. */
  streams: number;
  /** Bytes that it may send in total. */
  received: number;
  /** Bytes of answers to its frames that it may leave unread. */
  unread: number;
}

export const CONNECTION_LIMITS: Readonly<Record<'unauthenticated' | 'agent' | 'gateway', ConnectionLimits>> = {
  unauthenticated: { streams: 4, received: 16_384, unread: 65_536 },
  /**
   * An SDK has one RPC and one heartbeat stream at a time. The unread bytes hold what its streams carry and 16,000 control
   * frames.
   */
  agent: { streams: 64, received: Number.POSITIVE_INFINITY, unread: 524_288 },
  /** A gateway opens 500 streams for clients, and others while resets of earlier ones are on their way. */
  gateway: { streams: 2048, received: Number.POSITIVE_INFINITY, unread: 524_288 },
};

/**
 * Glitches, as nghttp2 and HAProxy call them: data for streams that are closed or never existed, and streams that the peer
 * opens and resets. When a client leaves, some 32 frames are on their way; SDKs never reset a stream that they opened.
 */
export const GLITCHES: BucketRate = { burst: 100_000, perMs: 10 };

/** Bytes held for streams below this are not reported to the budget. */
const FLOOR = 65_536;
/** Share of the remaining memory that one stream may be granted credit for. */
const STREAM_SHARE = 1 / 8;

/** What the streams of a connection hold in memory, as its budget knows it. */
export class HeldMemory {
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
