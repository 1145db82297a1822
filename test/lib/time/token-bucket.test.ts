import { expect, it } from 'vitest';
import { TokenBucket, TokenBuckets } from '../../../src/lib/time/token-bucket.ts';

/** What a client that tries at a steady rate gets in the second half of a minute, with 3 a second allowed. */
function granted(triesPerSecond: number): number {
  const bucket = new TokenBucket({ burst: 15, perMs: 3 / 1000, maxDebt: 15 }, 0);
  let count = 0;
  for (let now = 0; now < 60_000; now += 1000 / triesPerSecond)
    if (bucket.tryTake(now, 1 / 4) && now >= 30_000) count += 1;
  return count;
}

it('a client that repeats what failed gets its part, and one that tries much too often nothing', () => {
  expect(granted(2)).toBe(60);
  expect(granted(7)).toBeGreaterThan(30);
  expect(granted(7)).toBeLessThan(90);
  expect(granted(100)).toBe(0);
});

it('a burst can be taken at once, and what is owed has to come back first', () => {
  const bucket = new TokenBucket({ burst: 100, perMs: 2 }, 0);
  bucket.take(150, 0);
  expect(bucket.left(0)).toBe(-50);
  expect(bucket.waitMs(0, 0)).toBe(25);
  expect(bucket.waitMs(0, 20)).toBe(5);
  expect(bucket.left(1_000)).toBe(100);
});

it('buckets of one kind are told apart, and the one used longest ago is forgotten first', () => {
  const buckets = new TokenBuckets({ burst: 1, perMs: 0 }, 2);
  for (const key of ['a', 'b', 'a', 'c']) buckets.of(key, 0).take(1, 0);
  expect(['a', 'c', 'b'].map((key) => buckets.of(key, 0).left(0))).toEqual([-1, 0, 1]);
});
