import { constants, PerformanceObserver } from 'node:perf_hooks';
import { expect, it, onTestFinished } from 'vitest';
import { buffersPassed } from '../../src/lib/young-buffers.ts';

it('the young part of the heap is collected once enough large buffers have passed, and not before', async () => {
  let minor = 0;
  const observer = new PerformanceObserver((list) => {
    for (const { detail } of list.getEntries() as { detail?: { kind?: number; flags?: number } }[]) {
      const forced = detail?.flags === constants.NODE_PERFORMANCE_GC_FLAGS_FORCED;
      if (detail?.kind === constants.NODE_PERFORMANCE_GC_MINOR && forced) minor += 1;
    }
  });
  observer.observe({ entryTypes: ['gc'] });
  onTestFinished(() => observer.disconnect());
  for (let at = 0; at < 100_000; at += 1) buffersPassed(1000);
  for (let at = 0; at < 160; at += 1) buffersPassed(65_536);
  await expect.poll(() => minor).toBeGreaterThanOrEqual(2);
  expect(minor).toBeLessThan(10);
});
