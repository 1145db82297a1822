import { expect, it, onTestFinished } from 'vitest';
import { Standstill } from '../../../src/lib/time/standstill.ts';
import { until } from '../../support/until.ts';

const LONG_MS = 300;

/** Blocks the event loop. */
function block(ms: number): void {
  for (const end = performance.now() + ms; performance.now() < end; );
}

it('knows that the process stood still until what had waited was read', async () => {
  const standstill = new Standstill(LONG_MS);
  onTestFinished(() => standstill.stop());
  const before = performance.now();
  expect([standstill.since(before), standstill.lastedMs < LONG_MS]).toEqual([false, true]);
  block(700);
  expect(standstill.lastedMs).toBeGreaterThanOrEqual(LONG_MS);
  // As for a connection that had to be accepted first.
  await new Promise((resolve) => setImmediate(resolve));
  expect(standstill.lastedMs).toBeGreaterThanOrEqual(LONG_MS);
  await until(() => standstill.lastedMs < LONG_MS, 'it goes on');
  expect(standstill.since(before)).toBe(true);
  expect(standstill.since(performance.now())).toBe(false);
});
