import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { watchHeartbeats } from '../../../src/gateway/sessions/heartbeat-timeout.ts';

const AGREED = { interval: 10_000, tolerance: 15_000 };
const immediates = async () => {
  for (let turn = 0; turn < 2; turn++) await new Promise((resolve) => setImmediate(resolve));
};

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance', 'setTimeout', 'clearTimeout'] }));
afterEach(() => void vi.useRealTimers());

function setUp() {
  const state = { lastReadAt: performance.now(), ended: 0 };
  const stop = watchHeartbeats(AGREED, state, () => void state.ended++);
  return { state, stop };
}

it('a session whose heartbeats waited unread while the gateway stalled goes on', async () => {
  const { state, stop } = setUp();
  vi.advanceTimersByTime(60_000);
  // After its timers, the event loop reads the sockets.
  state.lastReadAt = performance.now();
  await immediates();
  expect(state.ended).toBe(0);
  vi.advanceTimersByTime(25_000);
  await immediates();
  expect(state.ended).toBe(0);
  stop();
});

it('a session that has sent nothing is over after the reading, once', async () => {
  const { state } = setUp();
  vi.advanceTimersByTime(27_000);
  await immediates();
  vi.advanceTimersByTime(60_000);
  await immediates();
  expect(state.ended).toBe(1);
});
