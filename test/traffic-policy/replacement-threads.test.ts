import { once } from 'node:events';
import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Worker } from 'node:worker_threads';
import { expect, it } from 'vitest';
import { systemClock } from '../../src/lib/time/clock.ts';
import { regularExpression } from '../../src/traffic-policy/regular-expression.ts';
import { ReplacementThreads } from '../../src/traffic-policy/replacement-threads.ts';
import { ProcessorTime } from '../../src/traffic-policy/state/processor-time.ts';
import { SteeredClock } from '../support/steered-clock.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

it.for([
  { when: 'while it was idle', loopIsBlocked: false },
  // As on a busy gateway: the answer and the end are seen in one turn.
  { when: 'before its answer was seen', loopIsBlocked: true },
])('a thread that died $when costs no request', async ({ loopIsBlocked }) => {
  const folder = temporaryFolder();
  const script = join(folder, 'dies-after-its-answer.mjs');
  const ended = join(folder, 'ended');
  writeFileSync(
    script,
    `import { writeFileSync } from 'node:fs';
    import { parentPort } from 'node:worker_threads';
    process.on('exit', () => writeFileSync(${JSON.stringify(ended)}, ''));
    parentPort.once('message', () => parentPort.postMessage({ text: 'replaced', replaced: [] }));`,
  );
  const thread = new ReplacementThreads(script);
  const ask = async () => {
    const all = [{ pattern: regularExpression('secret'), to: '' }];
    return (await thread.replace('secret'.repeat(10_000), all, new ProcessorTime(1, systemClock))).text;
  };
  const nothing = new Int32Array(new SharedArrayBuffer(4));
  for (let times = 0; times < 2; times++) {
    const begun = once(process, 'worker');
    const answer = ask();
    const [worker] = (await begun) as [Worker];
    while (loopIsBlocked && !existsSync(ended)) Atomics.wait(nothing, 0, 0, 20);
    expect(await answer).toBe('replaced');
    if (worker.threadId !== -1) await once(worker, 'exit');
    rmSync(ended);
  }
});

/** Threads that answer with each text as it is, but for long ones. */
function echoingThreads() {
  const script = join(temporaryFolder(), 'echoes.mjs');
  writeFileSync(
    script,
    `import { parentPort } from 'node:worker_threads';
    parentPort.on('message', ({ searched: text }) => text.startsWith('long') || parentPort.postMessage({ text, matches: [] }));`,
  );
  const threads = new ReplacementThreads(script);
  const time = new ProcessorTime(1, new SteeredClock());
  const from = (clientIp: string) => time.shareOf({ clientIp });
  const all = [{ pattern: regularExpression('secret'), to: '' }];
  const replace = (text: string, share: ProcessorTime, left?: AbortSignal) =>
    threads.replace(text.repeat(20_000), all, share, left).then(({ text: replaced }) => replaced.slice(0, 5));
  return { replace, from };
}

it('a client network whose search takes long delays no other one, and is charged for it', async () => {
  const { replace, from } = echoingThreads();
  const [stranger, other] = [from('192.0.2.66'), from('198.51.100.9')];
  const settled: string[] = [];
  const note = (what: string) => () => settled.push(what);
  const leaving = new AbortController();
  const long = replace('long', stranger).catch(note('long'));
  const left = replace('text1', stranger, leaving.signal).catch(note('left'));
  const next = replace('text2', stranger).then(note('text2'), note('refused'));
  await replace('other', other).then(note('other'));
  await replace('again', other).then(note('again'));
  leaving.abort(new Error('left'));
  await Promise.all([long, left, next]);
  expect(settled).toEqual(['other', 'again', 'left', 'long', 'refused']);
});

it('a client network that has taken more than its share is refused, and others are not', async () => {
  const { replace, from } = echoingThreads();
  const [stranger, other] = [from('192.0.2.66'), from('198.51.100.9')];
  stranger.spend(1_500);
  await expect(replace('text1', stranger)).rejects.toThrow('used up');
  expect(await replace('other', other)).toBe('other');
});
