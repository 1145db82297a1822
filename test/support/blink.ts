import { expect } from 'vitest';
import type { Stepwise } from '../../src/lib/stepwise.ts';
import { processorNow } from '../../src/lib/time/clock.ts';

/** All other traffic waits while a text is parsed. */
const BLINK_MS = 20;
/**
 * What takes longer the more there is of it takes seconds, not a few times longer. So there is room for what is not the
 * parser's: the collector with the memory of other tests, the compiler, other processes' use of the caches.
 */
const HEADROOM = 5;
const TRIES = 10;

const REFERENCE = `[${'{"a":"b","c":[1,2]},'.repeat(5_000)}1]`;
/** What parsing the reference takes on a machine that does nothing else. */
const QUIET_MS = 1.35;

/**
 * Expects work not to hold up other traffic: to take about 20 ms of processor time, each step of stepwise work for itself. On
 * a slow or busy machine, it may take longer by as much as a reference does at the same time. One try of several is enough.
 */
export async function expectBlink(work: () => unknown, title = ''): Promise<void> {
  let took = Number.POSITIVE_INFINITY;
  for (let tries = 0; tries < TRIES && took > BLINK_MS * HEADROOM; tries++) {
    const slowness = Math.max(1, referenceMs() / QUIET_MS);
    took = Math.min(took, (await longestMs(work)) / slowness);
  }
  expect(took, title).toBeLessThan(BLINK_MS * HEADROOM);
}

function referenceMs(): number {
  const times = Array.from({ length: 3 }, () => {
    const before = processorNow();
    JSON.parse(REFERENCE);
    return processorNow() - before;
  });
  return Math.min(...times);
}

async function longestMs(work: () => unknown): Promise<number> {
  let before = processorNow();
  const result = work();
  if (!isStepwise(result)) {
    await result;
    return processorNow() - before;
  }
  let longest = 0;
  for (let step = result.next(); ; step = result.next()) {
    const now = processorNow();
    longest = Math.max(longest, now - before);
    before = now;
    if (step.done) return longest;
  }
}

function isStepwise(value: unknown): value is Stepwise<unknown> {
  return typeof value === 'object' && value !== null && Symbol.iterator in value && 'next' in value;
}
