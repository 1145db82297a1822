import { type Clock, systemClock } from '../../src/lib/clock.ts';

/** A clock whose sleeps take no time but are remembered and counted. */
export class InstantClock implements Clock {
  /** Milliseconds asked for, in order. */
  readonly slept: number[] = [];
  #now = 0;

  constructor(private readonly chance = 0.5) {}

  now(): number {
    return this.#now;
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    this.slept.push(ms);
    this.#now += ms;
    // Lets timers and sockets have their turn, as a real pause would.
    await new Promise((resolve) => setImmediate(resolve));
    signal?.throwIfAborted();
  }

  readonly after: Clock['after'] = systemClock.after;

  random(): number {
    return this.chance;
  }
}
