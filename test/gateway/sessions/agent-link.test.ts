import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { SilenceWatch, watchHeartbeats } from '../../../src/gateway/sessions/agent-link.ts';

describe('watchHeartbeats', () => {
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
});

describe('SilenceWatch', () => {
  const connection = { lastReadAt: 0 };
  let answers = true;
  const ask = vi.fn(() => {
    if (answers) setTimeout(read, 300);
  });
  const onSilence = vi.fn();
  const read = () => {
    connection.lastReadAt = performance.now();
  };
  let watch: SilenceWatch;

  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setImmediate', 'clearImmediate', 'performance'] });
    vi.clearAllMocks();
    answers = true;
    read();
    watch = new SilenceWatch({ connection, ask, onSilence });
    vi.advanceTimersByTime(1000);
  });
  afterEach(() => {
    watch.stop();
    vi.useRealTimers();
  });

  it('an agent that answers nothing is noticed within its heartbeat', () => {
    answers = false;
    watch.sent();
    vi.advanceTimersByTime(2500);
    expect(ask).toHaveBeenCalledTimes(1);
    vi.advanceTimersByTime(6000);
    expect(onSilence).toHaveBeenCalledTimes(1);
  });

  it('an agent is stalled from two seconds after what it has not answered until it says something', () => {
    answers = false;
    watch.sent();
    vi.advanceTimersByTime(1900);
    expect(watch.isStalled).toBe(false);
    vi.advanceTimersByTime(200);
    expect(watch.isStalled).toBe(true);
    read();
    expect(watch.isStalled).toBe(false);
    vi.advanceTimersByTime(10_000);
    expect([watch.isStalled, onSilence.mock.calls.length]).toEqual([false, 0]);
  });

  it('an agent that falls silent between two requests is noticed, too', () => {
    answers = false;
    watch.sent();
    vi.advanceTimersByTime(1000);
    read();
    vi.advanceTimersByTime(500);
    watch.sent();
    vi.advanceTimersByTime(8500);
    expect(onSilence).toHaveBeenCalledTimes(1);
  });

  it('an agent whose upstream does not answer is asked, and stays', () => {
    for (let second = 0; second < 30; second++) {
      watch.sent();
      vi.advanceTimersByTime(1000);
    }
    expect(ask).toHaveBeenCalled();
    expect(onSilence).not.toHaveBeenCalled();
  });

  it('an agent that answers is not asked, and an idle one has no timers', () => {
    for (let second = 0; second < 30; second++) {
      watch.sent();
      vi.advanceTimersByTime(100);
      read();
      vi.advanceTimersByTime(900);
    }
    vi.advanceTimersByTime(3000);
    expect(ask).not.toHaveBeenCalled();
    expect(vi.getTimerCount()).toBe(0);
  });

  it('data that is sent while an answer may still wait to be read starts no second watch', () => {
    for (let round = 0; round < 5; round++) {
      watch.sent();
      // Up to the timer that judges; what it leaves to the next turn has yet to run.
      vi.advanceTimersToNextTimer();
      vi.advanceTimersToNextTimer();
      vi.advanceTimersToNextTimer();
      watch.sent();
      vi.advanceTimersByTime(100);
      expect(vi.getTimerCount()).toBeLessThanOrEqual(1);
    }
  });
});
