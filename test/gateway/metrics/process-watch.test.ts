import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { EdgeCounters } from '../../../src/gateway/metrics/edge-counters.ts';
import { watchProcess } from '../../../src/gateway/metrics/process-watch.ts';
import { silentLog } from '../../support/silent-log.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance', 'setInterval', 'clearInterval'] }));
afterEach(() => void vi.useRealTimers());

function setUp(openFile?: () => void) {
  const counters = new EdgeCounters();
  const lines: [fields: unknown, message: unknown][] = [];
  const write = (fields: unknown, message?: unknown) => void lines.push([fields, message]);
  const stop = watchProcess(counters, { ...silentLog, warn: write, error: write }, openFile);
  return { counters, lines, stop };
}

it('logs and counts stalls of the event loop, and logs at most once a minute', () => {
  const { counters, lines, stop } = setUp();
  vi.advanceTimersByTime(100_000);
  expect([lines, counters.stalledMs]).toEqual([[], 0]);
  for (let count = 0; count < 3; count++) {
    // The clock goes on, but no timer runs.
    vi.spyOn(performance, 'now').mockReturnValueOnce(performance.now() + 1000 + 2500);
    vi.advanceTimersByTime(1000);
    vi.advanceTimersByTime(1000);
  }
  expect(lines).toEqual([[{ stalled_ms: 2500 }, 'event loop stalled']]);
  expect(counters.stalledMs).toBe(7500);
  stop();
});

it('logs once a minute that the table of file descriptors is full', () => {
  let isFull = true;
  const { lines, stop } = setUp(() => {
    if (isFull) throw Object.assign(new Error('too many open files'), { code: 'EMFILE' });
  });
  vi.advanceTimersByTime(59_000);
  const line = [{ code: 'EMFILE' }, 'no file descriptor left: new connections are closed'];
  expect(lines).toEqual([line]);
  vi.advanceTimersByTime(60_000);
  expect(lines).toEqual([line, line]);
  isFull = false;
  vi.advanceTimersByTime(600_000);
  expect(lines).toHaveLength(2);
  stop();
});
