interface Heard {
  /** When the last bytes arrived, in milliseconds of `performance.now()`; any frame counts. */
  readonly lastReadAt: number;
}

/** An agent can ask for more; this bounds how long a dead session stays online, in milliseconds. */
const MAX_TIMEOUT_MS = 600_000;
/** Tolerated delay beyond what the agent itself tolerates. */
const SLACK_MS = 1_000;

/** Detects agents whose heartbeats stop: after `close()`, `@ngrok/ngrok` 1.7.0 just falls silent. Returns the stop. */
export function watchHeartbeats(
  agreed: { interval: number; tolerance: number },
  connection: Heard,
  onTimeout: () => void,
): () => void {
  const timeoutMs = Math.min(agreed.interval + agreed.tolerance + SLACK_MS, MAX_TIMEOUT_MS);
  let timer: NodeJS.Timeout | undefined;
  let immediate: NodeJS.Immediate | undefined;
  const left = () => connection.lastReadAt + timeoutMs - performance.now();
  const check = () => {
    const ms = left();
    if (ms > 0) timer = setTimeout(check, ms).unref();
    // Timers run before sockets are read: after a stall, heartbeats may still wait there.
    else immediate = setImmediate(judge);
  };
  const judge = () => {
    if (left() > 0) check();
    else onTimeout();
  };
  check();
  return () => {
    clearTimeout(timer);
    clearImmediate(immediate);
  };
}

/** Agents credit what they read at once: after so many milliseconds without any bytes of theirs, they are asked for some. */
const ASK_MS = 2_000;
/** Then they have this long. Below the heartbeat of SDKs (10 s), and above the pauses of mobile links. */
const ANSWER_MS = 6_000;

/**
 * Detects agents that answer nothing while clients wait: they lost power, or `@ngrok/ngrok` 1.7.0 has closed its session,
 * which keeps the socket. Their heartbeats are missed only later. Nothing runs while nothing is sent.
 */
export class SilenceWatch {
  #timer: NodeJS.Timeout | undefined;
  #immediate: NodeJS.Immediate | undefined;
  /** When the first bytes were sent since the last ones arrived. */
  #unansweredSince = 0;

  constructor(
    private readonly own: {
      readonly connection: Heard;
      /** Sends something that every live agent answers. */
      ask(): void;
      /** The agent does not answer. Not called again. */
      onSilence(): void;
    },
  ) {}

  sent(): void {
    if (this.#unansweredSince <= this.own.connection.lastReadAt) this.#unansweredSince = performance.now();
    if (this.#timer === undefined && this.#immediate === undefined) this.#wait(ASK_MS, () => this.#ask());
  }

  stop(): void {
    clearTimeout(this.#timer);
    clearImmediate(this.#immediate);
  }

  #ask(): void {
    if (this.own.connection.lastReadAt >= this.#unansweredSince) return;
    const early = this.#unansweredSince + ASK_MS - performance.now();
    if (early > 0) {
      this.#wait(early, () => this.#ask());
      return;
    }
    const askedAt = performance.now();
    this.#wait(ANSWER_MS, () => this.#judge(askedAt));
    this.own.ask();
  }

  #judge(askedAt: number): void {
    // Timers run before sockets are read: after a stall, an answer may still wait there.
    this.#immediate = setImmediate(() => {
      this.#immediate = undefined;
      if (this.own.connection.lastReadAt < askedAt) this.own.onSilence();
      else this.#ask();
    });
  }

  #wait(ms: number, then: () => void): void {
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      then();
    }, ms).unref();
  }
}
