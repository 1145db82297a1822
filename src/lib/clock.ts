import { setTimeout as delay } from 'node:timers/promises';

/** Time and chance, handed in wherever a test has to steer them. */
export interface Clock {
  /** Milliseconds on a clock that never jumps, whatever happens to the wall clock. */
  now(): number;
  /**
   * Resolves after `ms` milliseconds; keeps the process alive until then.
   *
   * @throws AbortError when the signal aborts first
   */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /**
   * Does the work after `ms` milliseconds. Far cheaper than a sleep for what is called off nearly always.
   *
   * @returns calls it off
   */
  after(ms: number, work: () => void): () => void;
  /** Uniform in [0, 1). */
  random(): number;
}

export const systemClock: Clock = {
  now: () => performance.now(),
  sleep: async (ms, signal) => {
    await delay(ms, undefined, { ...(signal && { signal }) });
  },
  after: (ms, work) => {
    const timer = setTimeout(work, ms);
    return () => clearTimeout(timer);
  },
  random: Math.random,
};
