import { expect, it } from 'vitest';
import { UselessFrames } from '../../../src/gateway/sessions/useless-frames.ts';

const NOW = 5 * 24 * 3_600_000;

it('an agent that reconnects keeps what is left of its allowance, and others have their own', () => {
  const frames = new UselessFrames();
  expect(frames.of('cr_1', '192.0.2.1').take(100_000, NOW)).toBe(true);
  expect(frames.of('cr_1', '192.0.2.1').take(1000, NOW)).toBe(false);
  expect(frames.of('cr_2', '192.0.2.1').take(1000, NOW)).toBe(true);
  expect(frames.of('cr_1', '192.0.2.2').take(1000, NOW)).toBe(true);
  expect(frames.of('cr_1', '192.0.2.1').take(1000, NOW + 60_000)).toBe(true);
});
