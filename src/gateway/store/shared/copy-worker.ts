import { parentPort, workerData } from 'node:worker_threads';
import { messageOf } from '../../../lib/errors.ts';
import { type CopyAnswer, type CopyJob, runCopyJob } from './copy-jobs.ts';

/** What a thread runs that works with a whole copy: a bundle of its own. */
function answerOf(job: CopyJob): CopyAnswer {
  try {
    return { digests: runCopyJob(job) };
  } catch (error) {
    return { problem: messageOf(error), code: (error as NodeJS.ErrnoException).code };
  }
}

parentPort?.postMessage(answerOf(workerData as CopyJob));
