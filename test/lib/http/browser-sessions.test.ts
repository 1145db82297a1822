import { expect, it } from 'vitest';
import { BrowserSessions, SESSION_SECONDS, type SessionEnds } from '../../../src/lib/http/browser-sessions.ts';

const MONTH_MS = SESSION_SECONDS * 1000;

function setUp() {
  let now = 1_800_000_000_000;
  const saved: SessionEnds[] = [];
  const save = async (sessions: SessionEnds) => void saved.push(new Map(sessions));
  const sessions = new BrowserSessions({ save, now: () => now });
  const pass = (ms: number) => {
    now += ms;
  };
  return { sessions, saved, pass, now: () => now };
}

it('a session ends 30 days after its last use', async () => {
  const { sessions, pass } = setUp();
  const id = await sessions.start();
  for (let use = 0; use < 3; use++) {
    pass(MONTH_MS - 1);
    expect(sessions.isOpen(id)).toBe(true);
  }
  pass(MONTH_MS);
  expect(sessions.isOpen(id)).toBe(false);
  expect(sessions.isOpen(id)).toBe(false);
});

it('asking whether a session lasts does not prolong it', async () => {
  const { sessions, pass } = setUp();
  const lasts = sessions.lasting(await sessions.start());
  pass(MONTH_MS - 1);
  expect(lasts()).toBe(true);
  pass(1);
  expect(lasts()).toBe(false);
});

it('sessions have identifiers of their own, and end alone', async () => {
  const { sessions } = setUp();
  const [first, second] = [await sessions.start(), await sessions.start()];
  expect(first).not.toBe(second);
  await sessions.end(first);
  expect([sessions.isOpen(first), sessions.isOpen(second)]).toEqual([false, true]);
});

it('signing in without end fills no memory: the session that was prolonged the longest ago ends', async () => {
  const { sessions, pass } = setUp();
  const [used, unused] = [await sessions.start(), await sessions.start()];
  for (let n = 0; n < 98; n++) await sessions.start();
  pass(2 * 24 * 3_600_000);
  expect(sessions.isOpen(used)).toBe(true);
  await sessions.start();
  expect([sessions.isOpen(used), sessions.isOpen(unused)]).toEqual([true, false]);
});

it('what is saved opens the sessions in the next run, and contains no identifier', async () => {
  const { sessions, saved, now } = setUp();
  const [id, ended] = [await sessions.start(), await sessions.start()];
  await sessions.end(ended);
  const kept = saved.at(-1) ?? new Map();
  expect(JSON.stringify([...kept])).not.toContain(id);
  const next = new BrowserSessions({ kept, now });
  expect([next.isOpen(id), next.isOpen(ended)]).toEqual([true, false]);
});

it('a session in use is saved once a day at most, to spare the disk', async () => {
  const { sessions, saved, pass } = setUp();
  const id = await sessions.start();
  for (let hour = 0; hour < 48; hour++) {
    pass(3_600_000);
    sessions.isOpen(id);
  }
  expect(saved.length).toBeLessThanOrEqual(3);
});
