/** What the peer may use of a connection. */
export interface ConnectionLimits {
  /** Streams that it may have open. */
  streams: number;
  /** Bytes that it may send in total. */
  received: number;
  /** Bytes of answers to its frames that it may leave unread. */
  unread: number;
}

/** Limits until the peer has authenticated: a heartbeat and one request. */
export const UNAUTHENTICATED_LIMITS: ConnectionLimits = { streams: 4, received: 16_384, unread: 65_536 };
/**
 * Limits of agents. An SDK has one RPC and one heartbeat stream at a time. The unread bytes hold what its streams carry
 * and 16,000 control frames.
 */
export const AGENT_LIMITS: ConnectionLimits = { streams: 64, received: Number.POSITIVE_INFINITY, unread: 524_288 };
/** Limits of a gateway: it opens 500 streams for clients, and others while resets of earlier ones are on their way. */
export const GATEWAY_LIMITS: ConnectionLimits = {
  streams: 2048,
  received: Number.POSITIVE_INFINITY,
  unread: 524_288,
};

/**
 * Frames that come to nothing: data for streams that are closed or never existed, and streams that the peer opens and
 * resets. When a client leaves, some 32 frames are on their way; SDKs never reset a stream that they opened.
 */
const USELESS_FRAMES = 100_000;
const USELESS_FRAMES_PER_MS = 10;

/** How many frames of a peer may come to nothing. */
export class FrameAllowance {
  /** When those received so far will be forgiven, in milliseconds of `performance.now()`. */
  #until = 0;

  /**
   * @param now milliseconds of `performance.now()`
   * @returns false when they exceed the allowance
   */
  take(frames: number, now: number): boolean {
    this.#until = Math.max(this.#until, now) + frames / USELESS_FRAMES_PER_MS;
    return this.#until - now <= USELESS_FRAMES / USELESS_FRAMES_PER_MS;
  }
}
