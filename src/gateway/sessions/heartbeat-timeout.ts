/** An agent may set longer times; this bounds how long a dead session can stay online, in milliseconds. */
const MAX_TIMEOUT_MS = 600_000;
/** Tolerated delay beyond what the agent itself tolerates. */
const SLACK_MS = 1_000;

/**
 * Detects agents whose heartbeats stop: after `close()`, `@ngrok/ngrok` 1.7.0 neither says goodbye nor closes the socket,
 * it just falls silent.
 */
export class HeartbeatTimeout {
  readonly #timeoutMs: number;
  readonly #lastReadAt: () => number;
  readonly #onTimeout: () => void;
  #timer: NodeJS.Timeout | undefined;

  /**
   * @param agreed interval and tolerance that the agent sent when it authenticated, in milliseconds
   * @param lastReadAt when the last bytes arrived, in milliseconds of `performance.now()`; any frame counts
   */
  constructor(agreed: { interval: number; tolerance: number }, lastReadAt: () => number, onTimeout: () => void) {
    this.#timeoutMs = Math.min(agreed.interval + agreed.tolerance + SLACK_MS, MAX_TIMEOUT_MS);
    this.#lastReadAt = lastReadAt;
    this.#onTimeout = onTimeout;
    this.#check();
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #check(): void {
    const left = this.#lastReadAt() + this.#timeoutMs - performance.now();
    if (left <= 0) this.#onTimeout();
    else this.#timer = setTimeout(() => this.#check(), left).unref();
  }
}
