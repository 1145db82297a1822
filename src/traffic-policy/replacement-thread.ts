import { Worker } from 'node:worker_threads';
import { Limiter } from '../lib/limiter.ts';
import { withDeadline } from '../lib/time/deadline.ts';
import { PolicyFailure } from './policy-errors.ts';
import type { ProcessorTime } from './state/processor-time.ts';
import { type ReplacedText, replaceAll, type TextReplacement } from './text-replacements.ts';

export interface Job {
  readonly text: string;
  readonly replacements: readonly { readonly source: string; readonly to: string }[];
}
export type JobResult = ReplacedText | { readonly problem: string };

/** Characters times instructions of the patterns that are searched without the thread: about 2 ms in the worst case. */
const AT_ONCE = 50_000;
const DEADLINE_MS = 1000;
/** An idle thread takes memory that a small device needs. */
const IDLE_MS = 60_000;
const LIMITS = { maxOldGenerationSizeMb: 64 };

/**
 * Finds and replaces in long texts, which the event loop cannot wait for: one search takes up to 10 µs a character. One text
 * at a time, by turns of those who pay.
 */
export class ReplacementThread {
  readonly #turns = new Limiter(1);
  readonly #byPayer = new WeakMap<ProcessorTime, Limiter>();
  #worker: Worker | null = null;
  #idle: NodeJS.Timeout | undefined;

  /** @param script the bundle of replacement-worker.ts */
  constructor(private readonly script: string) {}

  /**
   * @param time is charged
   * @throws Error when it takes longer than a second, or the result is too long
   */
  async replace(text: string, replacements: readonly TextReplacement[], time: ProcessorTime): Promise<ReplacedText> {
    const size = replacements.reduce((sum, { pattern }) => sum + pattern.size, 0);
    if (size * text.length <= AT_ONCE) return time.run(() => replaceAll(text, replacements));
    const job = { text, replacements: replacements.map(({ pattern, to }) => ({ source: pattern.source, to })) };
    const ofPayer = this.#byPayer.get(time) ?? new Limiter(1);
    this.#byPayer.set(time, ofPayer);
    return ofPayer.run(() => this.#turns.run(() => this.#measured(job, time)));
  }

  async #measured(job: Job, time: ProcessorTime): Promise<ReplacedText> {
    if (time.isSpent) {
      throw new PolicyFailure('ERR_NGROK_5001', "the authtoken's policies have used up their processor time");
    }
    clearTimeout(this.#idle);
    const start = performance.now();
    try {
      const result = await withDeadline(this.#run(job), 'finding and replacing', DEADLINE_MS);
      if ('problem' in result) throw new PolicyFailure('ERR_NGROK_2300', result.problem);
      this.#idle = setTimeout(() => this.#end(), IDLE_MS).unref();
      return result;
    } catch (error) {
      // It may still be at work.
      this.#end();
      throw error;
    } finally {
      time.spend(performance.now() - start);
    }
  }

  #run(job: Job): Promise<JobResult> {
    const worker = this.#worker ?? new Worker(this.script, { resourceLimits: LIMITS });
    this.#worker = worker;
    worker.unref();
    return new Promise((resolve, reject) => {
      worker.removeAllListeners();
      worker
        .on('message', resolve)
        .on('error', reject)
        .on('exit', () => {
          if (this.#worker === worker) this.#worker = null;
          reject(new Error('the thread ended'));
        });
      worker.postMessage(job);
    });
  }

  #end(): void {
    // What it has to say no longer matters, and it may have ended already.
    const ignore = () => {};
    this.#worker?.removeAllListeners().on('error', ignore).terminate().catch(ignore);
    this.#worker = null;
  }
}
