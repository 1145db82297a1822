import { readFileSync, readlinkSync } from 'node:fs';
import { setPriority } from 'node:os';
import { basename } from 'node:path';
import { parentPort } from 'node:worker_threads';
import { messageOf } from '../lib/errors.ts';
import { regularExpression } from './regular-expression.ts';
import type { Job, JobResult } from './replacement-threads.ts';
import { replaceAll } from './text-replacements.ts';

const OWN = '/proc/thread-self';

/**
 * Linux gives each of three such threads a thirtieth of a core that others keep busy. With 10, a tenth, they delayed the event
 * loop; with 19, searches took seconds beside a flood.
 */
const NICE = 15;

/** What a thread of replacements runs: a bundle of its own. */
function resultOf({ searched, replacements }: Job): JobResult {
  const start = processorMs();
  try {
    const result = replaceAll(
      searched,
      replacements.map(({ source, to }) => ({ pattern: regularExpression(source), to })),
    );
    return { ...result, spentMs: processorMs() - start };
  } catch (error) {
    return { problem: messageOf(error) };
  }
}

/** Milliseconds that this thread has run, without those in which other threads did; else a clock's. */
function processorMs(): number {
  try {
    // See proc_pid_schedstat(5): nanoseconds on a processor come first.
    return Number(readFileSync(`${OWN}/schedstat`, 'latin1').split(' ', 1)) / 1e6;
  } catch {
    // Not Linux, or a kernel without it.
    return performance.now();
  }
}

/** On one core, a search must not keep the event loop from its work: Linux has a priority for each thread. */
function yieldToEventLoop(): void {
  try {
    setPriority(Number(basename(readlinkSync(OWN))), NICE);
  } catch {
    // Not Linux, or a container forbids it: searches then take the event loop's time, and work all the same.
  }
}

yieldToEventLoop();
parentPort?.on('message', (job: Job) => parentPort?.postMessage(resultOf(job)));
