import { expect, it } from 'vitest';
import { CleanupStack } from '../../src/lib/cleanup-stack.ts';
import { recordingLog } from '../support/silent-log.ts';

it('runs every step once in reverse order, despite failures, and throws the first failure', async () => {
  const { log, lines } = recordingLog();
  const cleanup = new CleanupStack(log);
  const order: string[] = [];
  cleanup.add(() => void order.push('data folder'));
  cleanup.add(() => Promise.reject(new Error('the second failure')));
  cleanup.add(async () => void order.push('gateway'));
  cleanup.add(() => {
    throw new Error('the first failure');
  });
  await expect(cleanup.run()).rejects.toThrow('the first failure');
  expect(order).toEqual(['gateway', 'data folder']);
  expect(lines.map(({ err }) => (err as Error).message)).toEqual(['the first failure', 'the second failure']);
  await cleanup.run();
  expect(order).toHaveLength(2);
});
