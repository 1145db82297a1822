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
