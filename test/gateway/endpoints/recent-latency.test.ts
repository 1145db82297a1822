import { expect, it } from 'vitest';
import { EndedRequests, LATENCY_CLASSES, RecentLatency } from '../../../src/gateway/endpoints/traffic-counts.ts';
import { UPTIME_MS } from '../../support/uptime.ts';

const MINUTE_MS = 60_000;

it('the latency of the last minutes has at least half of them while requests come, and none after them', () => {
  const ended = new EndedRequests();
  const recent = new RecentLatency(ended.counts, UPTIME_MS);
  const total = (now: number) => recent.counts(ended.counts, now).reduce((sum, each) => sum + each, 0);
  for (let minute = 1; minute <= 30; minute++) {
    recent.mark(ended.counts, UPTIME_MS + minute * MINUTE_MS);
    ended.add(1, minute <= 20 ? 7_000 : 3);
    const here = total(UPTIME_MS + minute * MINUTE_MS);
    expect(here).toBeLessThanOrEqual(7);
    if (minute > 5) expect(here).toBeGreaterThanOrEqual(3);
  }
  // What was slow ten minutes ago does not count.
  const now = UPTIME_MS + 30 * MINUTE_MS;
  expect(recent.counts(ended.counts, now)).toEqual(new Float64Array(LATENCY_CLASSES).fill(total(now), 0, 1));
  expect(total(now + 5 * MINUTE_MS)).toBe(0);
});

it('what came before a long silence does not count with what comes after it', () => {
  const ended = new EndedRequests();
  const recent = new RecentLatency(ended.counts, UPTIME_MS);
  for (let i = 0; i < 40; i++) ended.add(1, 7_000);
  const later = UPTIME_MS + 60 * MINUTE_MS;
  recent.mark(ended.counts, later);
  ended.add(1, 3);
  expect([...recent.counts(ended.counts, later)].reduce((sum, each) => sum + each)).toBe(1);
});
