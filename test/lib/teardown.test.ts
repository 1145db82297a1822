import { expect, it } from 'vitest';
import { Teardown } from '../../src/lib/teardown.ts';
import { recordingLog } from '../support/silent-log.ts';

it('stops everything in the opposite order, past what fails, and says what failed first', async () => {
  const { log, lines } = recordingLog();
  const parts = new Teardown(log);
  const order: string[] = [];
  parts.add(() => void order.push('data folder'));
  parts.add(() => Promise.reject(new Error('the second failure')));
  parts.add(async () => void order.push('gateway'));
  parts.add(() => {
    throw new Error('the first failure');
  });
  await expect(parts.stop()).rejects.toThrow('the first failure');
  expect(order).toEqual(['gateway', 'data folder']);
  expect(lines.map(({ err }) => (err as Error).message)).toEqual(['the first failure', 'the second failure']);
  await parts.stop();
  expect(order).toHaveLength(2);
});
