import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Worker } from 'node:worker_threads';
import { expect, it } from 'vitest';
import { systemClock } from '../../src/lib/time/clock.ts';
import { regularExpression } from '../../src/traffic-policy/regular-expression.ts';
import { ReplacementThread } from '../../src/traffic-policy/replacement-thread.ts';
import { ProcessorTime } from '../../src/traffic-policy/state/processor-time.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

it('a thread that died while it was idle costs no request', async () => {
  const script = join(temporaryFolder(), 'dies-after-its-answer.mjs');
  writeFileSync(
    script,
    `import { parentPort } from 'node:worker_threads';
    parentPort.once('message', () => parentPort.postMessage({ text: 'replaced', replaced: [] }));`,
  );
  const thread = new ReplacementThread(script);
  const ask = async () => {
    const all = [{ pattern: regularExpression('secret'), to: '' }];
    return (await thread.replace('secret'.repeat(10_000), all, new ProcessorTime(1, systemClock))).text;
  };
  const begun = once(process, 'worker');
  expect(await ask()).toBe('replaced');
  const [worker] = (await begun) as [Worker];
  if (worker.threadId !== -1) await once(worker, 'exit');
  expect(await ask()).toBe('replaced');
});
