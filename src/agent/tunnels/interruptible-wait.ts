import type { Clock } from '../../lib/time/clock.ts';

/** The one wait that a loop is in, which others can end early. */
export class InterruptibleWait {
  #interrupt: () => void = () => {};

  constructor(private readonly clock: Clock) {}

  interrupt(): void {
    this.#interrupt();
  }

  async sleep(ms: number): Promise<void> {
    const waiting = new AbortController();
    this.#interrupt = () => waiting.abort();
    await this.clock.sleep(ms, waiting.signal).catch((reason: unknown) => {
      if (!waiting.signal.aborted) throw reason;
    });
  }

  /** @returns what the promise resolves with; null when interrupted first */
  until<T>(promise: Promise<T>): Promise<T | null> {
    return new Promise((resolve) => {
      this.#interrupt = () => resolve(null);
      void promise.then(resolve);
    });
  }

  async untilInterrupted(): Promise<void> {
    await this.until(new Promise<never>(() => {}));
  }
}
