import { expect, it } from 'vitest';
import { Allowance } from '../../../src/lib/time/allowance.ts';

/** What a client that tries at a steady rate gets in the second half of a minute, with 3 a second allowed. */
function granted(triesPerSecond: number): number {
  const allowance = new Allowance(15, 3, 0);
  let count = 0;
  for (let now = 0; now < 60_000; now += 1000 / triesPerSecond) if (allowance.take(now) && now >= 30_000) count += 1;
  return count;
}

it('a client that repeats what failed gets its part, and one that tries much too often nothing', () => {
  expect(granted(2)).toBe(60);
  expect(granted(7)).toBeGreaterThan(30);
  expect(granted(7)).toBeLessThan(90);
  expect(granted(100)).toBe(0);
});
