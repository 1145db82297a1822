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
 * others ran meanwhile. Costs some microseconds, and more in a process with many threads: see {@link ProcessorSpan}.
 */
export function processorNow(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** For how long an answer of {@link processorNow} serves as the begin of further spans, in milliseconds. */
const FRESH_MS = 2;
let latest = { at: Number.NEGATIVE_INFINITY, processor: 0 };

function ask(): typeof latest {
  latest = { at: performance.now(), processor: processorNow() };
  return latest;
}

/** Spans begin in nearly every turn while agents connect, and asking the system for each would take a seventh of the time. */
function beginning(): typeof latest {
  return performance.now() - latest.at > FRESH_MS ? ask() : latest;
}

/**
 * Tells when this process has taken some processor time, and asks for that only when the clock does not answer already. It may
 * say so two milliseconds early.
 */
export class ProcessorSpan {
  readonly #began: number;
  readonly #processor: number;

  constructor() {
    const { at, processor } = beginning();
    this.#began = at;
    this.#processor = processor;
  }

  /** Whether at least `ms` milliseconds of processor time have been taken since this was created. */
  hasTaken(ms: number): boolean {
    const now = performance.now();
    // One thread takes no more processor time than passes.
    const most = Math.min(now - this.#began, latest.processor - this.#processor + now - latest.at);
    return most >= ms && ask().processor - this.#processor >= ms;
  }
}
