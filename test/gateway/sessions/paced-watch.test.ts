import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { LinkUse } from '../../../src/agent-protocol/heartbeat.ts';
import { StreamType } from '../../../src/agent-protocol/messages.ts';
import { watchPaced } from '../../../src/gateway/sessions/paced-watch.ts';
import { auth, rawAgent } from './raw-agent.ts';
import { SessionGateway } from './session-gateway.ts';

describe('watchPaced', () => {
  const PACE_MS = 19_000;
  let connection: { lastReadAt: number; use: LinkUse };
  let stop: () => void;
  const ask = vi.fn();
  const onTimeout = vi.fn();
  /** What the end of a turn brings is not faked. */
  const pass = async (ms: number) => {
    for (let left = ms; left > 0; left -= 100) {
      vi.advanceTimersByTime(Math.min(100, left));
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  const read = () => {
    connection.lastReadAt = performance.now();
  };

  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    vi.clearAllMocks();
    connection = { lastReadAt: performance.now(), use: new LinkUse() };
    stop = watchPaced(PACE_MS, connection, { ask, onTimeout });
  });
  afterEach(() => {
    stop();
    vi.useRealTimers();
  });

  it('an idle agent has as long as it has said, and a little more', async () => {
    await pass(28_900);
    expect(onTimeout).not.toHaveBeenCalled();
    await pass(2_200);
    expect(onTimeout).toHaveBeenCalledExactlyOnceWith('heartbeat timed out');
    expect(ask).not.toHaveBeenCalled();
  });

  it('an agent for which a client waits is asked, and is gone after 10 s of silence', async () => {
    connection.use.note(true);
    await pass(10_100);
    expect(ask).toHaveBeenCalledOnce();
    expect(onTimeout).toHaveBeenCalledExactlyOnceWith('the agent does not answer');
  });

  it('an agent that falls silent while a download comes is gone as soon', async () => {
    await pass(60);
    connection.use.note(false);
    read();
    await pass(10_100);
    expect(onTimeout).toHaveBeenCalledExactlyOnceWith('the agent does not answer');
  });

  it('an agent whose upstream takes a minute is asked, and stays', async () => {
    connection.use.note(true);
    ask.mockImplementation(() => setTimeout(read, 300));
    await pass(50_000);
    expect(ask.mock.calls.length).toBeGreaterThan(5);
    expect(onTimeout).not.toHaveBeenCalled();
    ask.mockReset();
  });

  it('a session whose answers waited unread while the gateway stalled goes on', async () => {
    connection.use.note(true);
    await pass(7_000);
    expect(ask).toHaveBeenCalledOnce();
    // Timers run before sockets are read.
    vi.advanceTimersByTime(30_000);
    read();
    await pass(3_000);
    expect(onTimeout).not.toHaveBeenCalled();
  });
});

describe('an agent that asks for time between heartbeats', () => {
  async function agentWith(announced: boolean) {
    const gateway = await SessionGateway.start();
    const agent = await rawAgent(gateway);
    const { Extra, ...request } = auth(gateway);
    const answer = await agent.call(StreamType.auth, { ...request, Extra: { ...Extra, HeartbeatPace: announced } });
    return { ask: (IntervalMs: unknown) => agent.call(StreamType.pace, { IntervalMs }), extra: Object(answer.Extra) };
  }

  it('gets what it asks for, and little more than a minute at most', async () => {
    const { ask, extra } = await agentWith(true);
    expect(extra.HeartbeatPace).toBe(true);
    expect(await ask(19_000)).toEqual({ IntervalMs: 19_000 });
    expect(await ask(1e12)).toEqual({ IntervalMs: 75_000 });
    for (const wrong of [0, -1, 'long', null, undefined])
      expect(await ask(wrong)).toMatchObject({ Error: expect.stringContaining('invalid: IntervalMs') });
  });

  it('is refused unless it announces it', async () => {
    const { ask, extra } = await agentWith(false);
    expect(extra.HeartbeatPace).toBeUndefined();
    expect(await ask(19_000)).toMatchObject({ Error: expect.stringContaining('not supported') });
  });
});
