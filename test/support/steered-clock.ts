import type { Clock } from '../../src/lib/time/clock.ts';
import { UPTIME_MS } from './uptime.ts';

interface Sleeper {
  at: number;
  wake(): void;
}

/** A clock that only the test advances. */
export class SteeredClock implements Clock {
  #now = UPTIME_MS;
  readonly #sleepers = new Set<Sleeper>();
  /** The result of random(). */
  chance: () => number = () => 0.5;
  /** All sleeps so far, in milliseconds. */
  readonly delays: number[] = [];

  readonly now = () => this.#now;
  readonly random = () => this.chance();

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    this.delays.push(ms);
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const aborted = () => {
        this.#sleepers.delete(sleeper);
        reject(signal?.reason);
      };
      const wake = () => {
        this.#sleepers.delete(sleeper);
        signal?.removeEventListener('abort', aborted);
        resolve();
      };
      const sleeper = { at: this.#now + ms, wake };
      this.#sleepers.add(sleeper);
      signal?.addEventListener('abort', aborted, { once: true });
    });
  }

  after(ms: number, work: () => void): () => void {
    const sleeper = {
      at: this.#now + ms,
      wake: () => {
        this.#sleepers.delete(sleeper);
        work();
      },
    };
    this.#sleepers.add(sleeper);
    return () => this.#sleepers.delete(sleeper);
  }

  /** Moves the time without waking sleepers. */
  skip(ms: number): void {
    this.#now += ms;
  }

  /** The number of current sleepers. */
  get sleeping(): number {
    return this.#sleepers.size;
  }

  /** Advances the time, and wakes each sleeper at its own moment, one after another. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    await turn();
    for (;;) {
      const next = [...this.#sleepers].sort((a, b) => a.at - b.at)[0];
      if (!next || next.at > end) break;
      this.#now = next.at;
      next.wake();
      await turn();
    }
    this.#now = end;
  }

  /**
   * Advances the time until the promise settles; for tests with real sockets.
   *
   * @param stepMs milliseconds that pass in each 5 ms of real time
   */
  async advanceUntil<T>(promise: Promise<T>, stepMs = 50): Promise<T> {
    let settled = false;
    const settle = () => {
      settled = true;
    };
    promise.then(settle, settle);
    for (const giveUp = Date.now() + 120_000; !settled && Date.now() < giveUp; ) {
      await this.advance(stepMs);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    return promise;
  }
}

/** Resolves when all pending callbacks have run. */
async function turn(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}
