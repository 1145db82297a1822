import { expect, it, onTestFinished, vi } from 'vitest';
import { runCertificateTask } from '../../../src/lib/tls/certificate-turns.ts';

it('owners take turns, and so do their peers, however many tasks each has', async () => {
  const order: string[] = [];
  const add = (owner: string, peer: string, number: number) =>
    Array.from(
      { length: number },
      () =>
        new Promise<void>((resolve) => {
          runCertificateTask(owner, peer, () => {
            order.push(`${owner} ${peer}`);
            resolve();
          });
        }),
    );
  await Promise.all([...add('one', 'a', 4), ...add('one', 'b', 1), ...add('two', 'c', 2)].flat());
  expect(order).toEqual(['one a', 'two c', 'one b', 'two c', 'one a', 'one a', 'one a']);
});

it('all tasks together have a quarter of a core', async () => {
  let [used, now] = [0, performance.now()];
  const processor = vi.spyOn(process, 'cpuUsage').mockImplementation(() => ({ user: used, system: 0 }));
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
  onTestFinished(() => {
    processor.mockRestore();
    clock.mockRestore();
  });
  const run = (owner: string, ms: number) =>
    new Promise<void>((resolve) => {
      runCertificateTask(owner, 'peer', () => {
        used += ms * 1000;
        resolve();
      });
    });
  await run('one', 120);
  let hasRun = false;
  const next = run('two', 1).then(() => {
    hasRun = true;
  });
  await new Promise(setImmediate);
  expect(hasRun).toBe(false);
  now += 80;
  await next;
});
