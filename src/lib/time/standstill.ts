const TICK_MS = 200;
/** Of the process, also while a test sets the time forward. */
const now = performance.now.bind(performance);

/** Notices when this process stands still: it is stopped, its machine is suspended, or its event loop is blocked. */
export class Standstill {
  #tickAt = now();
  /** When the last long one ended. */
  #endedAt = Number.NEGATIVE_INFINITY;
  readonly #timer: NodeJS.Timeout;

  /** @param longMs shorter ones do not count */
  constructor(private readonly longMs: number) {
    this.#timer = setInterval(() => this.#tick(), TICK_MS).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** For so many milliseconds, it has stood still until now: what waits in its sockets may be that old. */
  get lastedMs(): number {
    return now() - this.#tickAt - TICK_MS;
  }

  /** Whether it has stood still for long after a moment, in milliseconds of `performance.now()`. */
  since(moment: number): boolean {
    return this.#endedAt >= moment || this.lastedMs >= this.longMs;
  }

  #tick(): void {
    if (this.lastedMs < this.longMs) {
      this.#tickAt = now();
      return;
    }
    this.#endedAt = now();
    // Timers come first in a turn: it counts until the sockets have been read, which may take a turn for new connections.
    setImmediate(() =>
      setImmediate(() => {
        this.#tickAt = now();
      }),
    );
  }
}
