import { TokenBucket } from '../../lib/time/token-bucket.ts';

/** Of one processor core. Plain requests take 2 to 4 % of it, as many as there may be. */
const SHARE = 0.2;
/** What may be taken at once, and once more as a debt. */
const BURST_MS = 50;
/** Each step takes far less; what took longer waited for other programs. */
const MAX_STEP_MS = 10;

/**
 * The processor time of all captures together. Who floods an upstream with tiny compressed messages must not delay the
 * connections of others.
 */
export class CaptureTime {
  readonly #bucket: TokenBucket;
  /** When the last step ended. */
  #at: number;

  /** @param now in milliseconds */
  constructor(private readonly now: () => number = () => performance.now()) {
    this.#at = now();
    this.#bucket = new TokenBucket({ burst: BURST_MS, perMs: SHARE }, this.#at);
  }

  /** Call this before the first step: the time since the last one was not spent here. */
  begin(): void {
    this.#at = this.now();
  }

  /**
   * Call this after each step.
   *
   * @returns `none`: only what is cheap should go on; `overdrawn`: nothing should
   */
  step(): 'some' | 'none' | 'overdrawn' {
    const now = this.now();
    this.#bucket.take(Math.min(MAX_STEP_MS, now - this.#at), now);
    this.#at = now;
    const left = this.#bucket.left(now);
    return left > 0 ? 'some' : left > -BURST_MS ? 'none' : 'overdrawn';
  }
}
