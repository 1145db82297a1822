import { expect, it } from 'vitest';
import { RecentFailures } from '../../../src/lib/time/recent-failures.ts';
import { UPTIME_MS } from '../../support/uptime.ts';

const WINDOW_MS = 1_000;

it('what succeeded before the first failure does not count, and failures are forgotten after the window', () => {
  const recent = new RecentFailures(WINDOW_MS);
  expect(recent.counts(5_000, 0, UPTIME_MS)).toEqual({ total: 0, failed: 0 });
  recent.add(5_001, 1, UPTIME_MS);
  expect(recent.counts(5_011, 1, UPTIME_MS + 999)).toEqual({ total: 11, failed: 1 });
  expect(recent.counts(5_011, 1, UPTIME_MS + 1_000)).toEqual({ total: 0, failed: 0 });
});

it('while failures go on, at least half of the window counts, and never more than all of it', () => {
  const recent = new RecentFailures(WINDOW_MS);
  for (let i = 1; i <= 50; i += 1) {
    recent.add(i, i, UPTIME_MS + i * 100);
    const { total, failed } = recent.counts(i, i, UPTIME_MS + i * 100);
    expect(failed).toBe(total);
    expect(failed).toBeLessThanOrEqual(10);
    if (i > 10) expect(failed).toBeGreaterThanOrEqual(6);
  }
});
