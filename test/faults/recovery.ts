import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'vitest';

/** Often enough for limits of seconds; more would slow down the gateway, which lives in the same process. */
const POLL_MS = 250;

interface TimingOptions {
  /** The clock by which the time is told, in milliseconds. */
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
    if (now() - from > limitMs) throw new Error(`${name} does not serve ${limitMs / 1000} s after the fault`);
    await delay(POLL_MS);
  }
  return now() - from;
}

/** Prints the figures, and expects them to be within a limit. */
export function expectRecovery(what: string, times: readonly number[], limitMs: number): void {
  const quantile = (q: number) => times[Math.min(times.length - 1, Math.floor(times.length * q))] ?? Number.NaN;
  const [p50, p95, max] = [quantile(0.5), quantile(0.95), quantile(1)];
  say(`${what}: ${times.length} times, p50 ${seconds(p50)}, p95 ${seconds(p95)}, max ${seconds(max)}`);
  expect(max, what).toBeLessThan(limitMs);
}

export const seconds = (ms: number) => `${(ms / 1000).toFixed(2)} s`;

/** Prints one line of what was measured. */
export function say(line: string): void {
  process.stdout.write(`  measured: ${line}\n`);
}
