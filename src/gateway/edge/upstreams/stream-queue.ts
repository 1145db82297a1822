import { StreamsExhausted } from '../../endpoints/endpoint.ts';

/** Milliseconds between attempts of the first in the queue. */
const POLL_MS = 20;

/** @returns whether the wait is over, with a stream or without */
type Attempt = () => boolean;

/**
 * Queues requests and connections for a stream when the agent has reached its limit. Only the first one polls for a free
 * stream: if all did, a large queue would use up the CPU.
 */
export class StreamQueue {
  readonly #attempts = new Set<Attempt>();
  #timer: NodeJS.Timeout | undefined;

  /** @param timeout milliseconds that each waits */
  constructor(private readonly timeout: number) {}

  /**
   * Opens a stream now, or when it is its turn.
   *
   * @param open throws {@link StreamsExhausted} when no stream is free
   * @param onFailure receives any other error, and {@link StreamsExhausted} after the timeout
   * @returns leaves the queue
   */
  enter<T>(open: () => T, onOpened: (opened: T) => void, onFailure: (error: unknown) => void): () => void {
    const deadline = performance.now() + this.timeout;
    const attempt = () => {
      let opened: T;
      try {
        opened = open();
      } catch (error) {
        if (error instanceof StreamsExhausted && performance.now() < deadline) return false;
        onFailure(error);
        return true;
      }
      onOpened(opened);
      return true;
    };
    if (this.#attempts.size === 0 && attempt()) return () => {};
    this.#attempts.add(attempt);
    this.#schedule();
    return () => void this.#attempts.delete(attempt);
  }

  /** Retries now: a stream may have become free. */
  retry(): void {
    if (this.#attempts.size === 0) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    for (const attempt of this.#attempts) {
      if (!attempt()) break;
      this.#attempts.delete(attempt);
    }
    if (this.#attempts.size > 0) this.#schedule();
  }

  #schedule(): void {
    this.#timer ??= setTimeout(() => this.retry(), POLL_MS).unref();
  }
}
