import { parentPort } from 'node:worker_threads';
import { messageOf } from '../lib/errors.ts';
import { regularExpression } from './regular-expression.ts';
import type { Job, JobResult } from './replacement-thread.ts';
import { replaceAll } from './text-replacements.ts';

/** What the thread of replacements runs: a bundle of its own. */
function resultOf({ text, replacements }: Job): JobResult {
  try {
    return replaceAll(
      text,
      replacements.map(({ source, to }) => ({ pattern: regularExpression(source), to })),
    );
  } catch (error) {
    return { problem: messageOf(error) };
  }
}

parentPort?.on('message', (job: Job) => parentPort?.postMessage(resultOf(job)));
