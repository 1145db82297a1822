import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'vitest';
import { measured } from '../support/measured.ts';
import { FULL } from './rounds.ts';

/** Often enough for limits of seconds; more would slow down the gateway, which lives in the same process. */
const POLL_MS = 250;

/** Times are judged where they are measured with nothing else going on; beside other tests only gross delay counts. */
export const SLACK = FULL ? 1 : 4;

interface TimingOptions {
  /** The clock to measure with, in milliseconds. */
  now?: () => number;
  /** When to start counting. */
  from?: number;
  /** Milliseconds after which to give up. */
  limitMs?: number;
}

/**
 * Asks for every name until all have been answered.
 *
 * @param serves asks once
 * @returns how many milliseconds each name took, sorted
 */
export async function timeUntilAll(
  names: readonly string[],
  serves: (name: string) => Promise<boolean>,
  { now = () => performance.now(), from = now(), limitMs = 60_000 }: TimingOptions = {},
): Promise<number[]> {
  return (await Promise.all(names.map((name) => timeUntil(name, serves, now, from, limitMs)))).sort((a, b) => a - b);
}

async function timeUntil(
  name: string,
  serves: (name: string) => Promise<boolean>,
  now: () => number,
  from: number,
  limitMs: number,
): Promise<number> {
  while (!(await serves(name))) {
    if (now() - from > limitMs * SLACK) throw new Error(`${name} does not serve ${limitMs / 1000} s after the fault`);
    await delay(POLL_MS);
  }
  return now() - from;
}

/**
 * Reports how long it took to recover, and expects it to be within a limit.
 *
 * @param tried how often the fault was provoked
 */
export function expectRecovery(fault: string, recovery: readonly number[], limitMs: number, tried = 1): void {
  measured({ fault, tried, recovery });
  expect(Math.max(...recovery), fault).toBeLessThan(limitMs * SLACK);
}
