import { expect, it } from 'vitest';
import { GlitchLimits } from '../../../src/gateway/sessions/agent-limits.ts';

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
