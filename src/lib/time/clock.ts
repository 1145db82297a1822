import { setTimeout as delay } from 'node:timers/promises';

/** Source of time and randomness, replaceable in tests. */
export interface Clock {
  /** Milliseconds on a monotonic clock. */
  now(): number;
  /**
   * Resolves after `ms` milliseconds; keeps the process alive until then.
   *
   * @throws AbortError when the signal aborts first
   */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /**
   * Calls `work` after `ms` milliseconds. Far cheaper than a sleep for timeouts that are nearly always cancelled.
   *
   * @returns cancels the call
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

/**
 * Milliseconds of processor time that this process has taken. On a busy machine, it counts what work takes, and not how long
 * others ran meanwhile. Costs some microseconds, and up to a tenth of a millisecond on a busy machine: too much for every turn of
 * the event loop.
 */
export function processorNow(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
