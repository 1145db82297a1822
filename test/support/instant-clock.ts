import { type Clock, systemClock } from '../../src/lib/time/clock.ts';
import { UPTIME_MS } from './uptime.ts';

/** A clock whose sleeps take no time but are recorded. */
export class InstantClock implements Clock {
  /** The requested sleeps in milliseconds, in order. */
  readonly slept: number[] = [];
  #now = UPTIME_MS;

  constructor(private readonly chance = 0.5) {}

  now(): number {
    return this.#now;
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    this.slept.push(ms);
    this.#now += ms;
    // Lets timers and sockets run, like a real pause.
    await new Promise((resolve) => setImmediate(resolve));
    signal?.throwIfAborted();
  }

  readonly after: Clock['after'] = systemClock.after;

  random(): number {
    return this.chance;
  }
}
