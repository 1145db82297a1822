import { expect, it } from 'vitest';
import { GlitchLimits, LoggedSessions, RequestTurns, sessionsIn } from '../../../src/gateway/sessions/agent-limits.ts';
import { recordingLog } from '../../support/silent-log.ts';
import { SteeredClock } from '../../support/steered-clock.ts';
import { settle } from '../../support/until.ts';

it('the sessions that a gateway takes follow its memory', () => {
  const GIB = 1024 * MIB;
  expect([GIB / 4, GIB, 2.5 * GIB, 1024 * GIB].map(sessionsIn)).toEqual([2_048, 8_192, 20_480, 100_000]);
});

const NOW = 5 * 24 * 3_600_000;

it('an agent that reconnects keeps what is left of its allowance, and others have their own', () => {
  const limits = new GlitchLimits();
  const take = (credential: string, address: string, frames: number, now = NOW) => {
    const bucket = limits.of(credential, address, now);
    bucket.take(frames, now);
    return bucket.left(now) >= 0;
  };
  expect(take('cr_1', '192.0.2.1', 100_000)).toBe(true);
  expect(take('cr_1', '192.0.2.1', 1000)).toBe(false);
  expect(take('cr_2', '192.0.2.1', 1000)).toBe(true);
  expect(take('cr_1', '192.0.2.2', 1000)).toBe(true);
  expect(take('cr_1', '192.0.2.1', 1000, NOW + 60_000)).toBe(true);
});

it('an authtoken that begins sessions again and again writes some of them to the log, and one line about the others', () => {
  const { log, lines } = recordingLog();
  const sessions = new LoggedSessions(log);
  const logged = (credential: string, count: number, now: number) =>
    Array.from({ length: count }, () => sessions.take(credential, now)).filter(Boolean).length;
  expect(logged('cr_busy', 5_000, NOW)).toBe(2_000);
  expect(logged('cr_other', 10, NOW)).toBe(10);
  expect(logged('cr_busy', 5_000, NOW + 60_000)).toBe(60);
  expect(lines).toEqual([
    expect.objectContaining({ credential: 'cr_busy', times: 1, msg: 'too many sessions to log: lines left out' }),
  ]);
});

const MIB = 1_048_576;

/** Asks for turns, and records in which order they come. */
function setUp() {
  const clock = new SteeredClock();
  const turns = new RequestTurns(clock);
  const handled: string[] = [];
  const ask = (id: string, size = 100, ms = 0) => {
    void turns.serve(id, size, async () => {
      clock.skip(ms);
      handled.push(id);
    });
  };
  return { clock, handled, ask };
}

it('handles requests of authtokens in turns, however many one of them has', async () => {
  const { handled, ask } = setUp();
  for (let count = 0; count < 100; count++) ask('many');
  ask('once');
  while (!handled.includes('once')) await new Promise((resolve) => setImmediate(resolve));
  expect(handled.indexOf('once')).toBeLessThan(4);
});

it('handles ten thousand small requests at once, and lets an authtoken with too many large ones wait', async () => {
  const { clock, handled, ask } = setUp();
  for (let count = 0; count < 10_000; count++) ask('small');
  for (let count = 0; count < 1000; count++) ask('large', MIB);
  while (handled.filter((id) => id === 'small').length < 10_000) await settle();
  const early = handled.length - 10_000;
  expect(early).toBeGreaterThan(100);
  expect(early).toBeLessThan(400);
  await clock.advance(10_000);
  while (handled.length - 10_000 === early) await settle();
  ask('other');
  await settle();
  expect(handled).toContain('other');
});

it('lets an authtoken wait whose requests take long, however small they are', async () => {
  const { clock, handled, ask } = setUp();
  for (let count = 0; count < 100; count++) ask('expensive', 100, 100);
  while (clock.sleeping === 0) await settle();
  const early = handled.length;
  expect(early).toBeLessThan(60);
  ask('other');
  await settle();
  expect(handled).toContain('other');
  for (const more of [1, 2]) {
    await clock.advance(60_000);
    while (handled.length < early + more) await settle();
  }
});

it('gives no turn to a request that nobody waits for any more', async () => {
  const clock = new SteeredClock();
  const turns = new RequestTurns(clock);
  const served = (isOver: boolean) =>
    turns.serve(
      'one',
      MIB,
      async () => 'served',
      () => isOver,
    );
  const over = Promise.allSettled(Array.from({ length: 1000 }, () => served(true)));
  expect(await served(false)).toBe('served');
  expect(clock.sleeping).toBe(0);
  const outcomes = await over;
  expect(outcomes.every(({ status }) => status === 'rejected')).toBe(true);
});
