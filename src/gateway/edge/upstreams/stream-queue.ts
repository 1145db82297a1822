import { StreamsExhausted } from '../../endpoints/endpoint.ts';

/** How often the first in line looks for a free stream, in milliseconds. */
const POLL = 20;

/** @returns whether somebody waits no longer, be it with a stream or without */
type Attempt = () => boolean;

/**
 * Those who wait for a stream to an upstream whose agent carries as many as it can, in order of arrival. The first alone
 * looks whether there is one: if all did, a crowd would take all the time there is.
 */
export class StreamQueue {
  readonly #attempts = new Set<Attempt>();
  #timer: NodeJS.Timeout | undefined;

  /** @param patience milliseconds that each waits */
  constructor(private readonly patience: number) {}

  /**
   * Opens a stream now, or when it is this one's turn.
   *
   * @param open throws {@link StreamsExhausted} when there is none now
   * @param onOpened given what was opened
   * @param onFailure told what else `open` throws, and the same in the end
   * @returns leaves the line
   */
  enter<T>(open: () => T, onOpened: (opened: T) => void, onFailure: (error: unknown) => void): () => void {
    const deadline = performance.now() + this.patience;
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
    this.#look();
    return () => void this.#attempts.delete(attempt);
  }

  /** Lets those who wait look now: a stream may have become free. */
  serve(): void {
    if (this.#attempts.size === 0) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    for (const attempt of this.#attempts) {
      if (!attempt()) break;
      this.#attempts.delete(attempt);
    }
    if (this.#attempts.size > 0) this.#look();
  }

  #look(): void {
    this.#timer ??= setTimeout(() => this.serve(), POLL).unref();
  }
}
