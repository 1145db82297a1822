import { expect, it } from 'vitest';
import { GlitchLimits, LoggedSessions } from '../../../src/gateway/sessions/agent-limits.ts';
import { recordingLog } from '../../support/silent-log.ts';

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
