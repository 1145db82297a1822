import { Worker } from 'node:worker_threads';
import { Limiter } from '../lib/limiter.ts';
import { withDeadline } from '../lib/time/deadline.ts';
import { PolicyFailure } from './policy-errors.ts';
import type { ProcessorTime } from './state/processor-time.ts';
import {
  contentOf,
  type ReplacedText,
  replaceAll,
  type SearchedBody,
  type TextReplacement,
} from './text-replacements.ts';

export interface Job {
  readonly searched: string | Uint8Array;
  readonly replacements: readonly { readonly source: string; readonly to: string }[];
}
/** With the milliseconds of processor time that it took. */
export type JobResult = (ReplacedText & { readonly spentMs: number }) | { readonly problem: string };

/** Characters times instructions of the patterns that are searched without the thread: about 2 ms in the worst case. */
const AT_ONCE = 50_000;
/** On a busy core, threads of low priority get little of it. */
const DEADLINE_MS = 5000;
/** Searches at a time: of all, of one payer, and of one network of its clients. The others need not wait for a long one. */
const AT_A_TIME = { all: 3, payer: 2, network: 1 };
/** An idle thread takes memory that a small device needs. */
const IDLE_MS = 60_000;
const LIMITS = { maxOldGenerationSizeMb: 64 };

/**
 * Finds and replaces in long texts, which the event loop cannot wait for: one search takes up to 10 µs a character. A few
 * texts at a time, by turns of those who pay, and of the networks of their clients. Callers count what waits for its turn.
 */
export class ReplacementThreads {
  readonly #turns = new Limiter(AT_A_TIME.all);
  readonly #byPayer = new WeakMap<ProcessorTime, Limiter>();
  /** Threads without work; the one that has worked last is the last. */
  readonly #idle: Worker[] = [];
  #idleTimer: NodeJS.Timeout | undefined;

  /**
   * @param script the bundle of replacement-worker.ts
   * @param deadlineMs milliseconds that a search may take
   */
  constructor(
    private readonly script: string,
    private readonly deadlineMs = DEADLINE_MS,
  ) {}

  /**
   * @param searched the bytes of a body must not change until they have been searched
   * @param time is charged: the payer's, or the share of a client network in it
   * @param left aborts when the client leaves; left out: nobody can tell
   * @throws Error when it takes too long, or the result is too long; and what decoding throws
   * @throws the reason of `left`, when it aborts before its turn
   */
  async replace(
    searched: string | SearchedBody,
    replacements: readonly TextReplacement[],
    time: ProcessorTime,
    left?: AbortSignal,
  ): Promise<ReplacedText> {
    const size = replacements.reduce((sum, { pattern }) => sum + pattern.size, 0);
    if (size * lengthOf(searched) <= AT_ONCE) {
      return time.run(() => replaceAll(typeof searched === 'string' ? searched : searched.bytes, replacements));
    }
    const patterns = replacements.map(({ pattern, to }) => ({ source: pattern.source, to }));
    const inTurn = () => this.#turns.run(() => this.#measured(searched, patterns, time), left);
    const ofPayer = () => this.#turnsOf(time.whole, AT_A_TIME.payer).run(inTurn, left);
    return time === time.whole ? ofPayer() : this.#turnsOf(time, AT_A_TIME.network).run(ofPayer, left);
  }

  #turnsOf(time: ProcessorTime, max: number): Limiter {
    const turns = this.#byPayer.get(time) ?? new Limiter(max);
    this.#byPayer.set(time, turns);
    return turns;
  }

  async #measured(
    searched: string | SearchedBody,
    replacements: Job['replacements'],
    time: ProcessorTime,
  ): Promise<ReplacedText> {
    if (time.isSpent) {
      throw new PolicyFailure('ERR_NGROK_5001', "the authtoken's policies have used up their processor time");
    }
    const job = { searched: await contentOf(searched, time), replacements };
    const start = performance.now();
    let spentMs: number | undefined;
    const worker = this.#idle.pop() ?? new Worker(this.script, { resourceLimits: LIMITS });
    worker.unref();
    try {
      const result = await withDeadline(resultOf(worker, job), 'finding and replacing', this.deadlineMs);
      if ('problem' in result) throw new PolicyFailure('ERR_NGROK_2300', result.problem);
      this.#rest(worker);
      ({ spentMs } = result);
      return result;
    } catch (error) {
      // It may still be at work.
      end(worker);
      throw error;
    } finally {
      time.spend(spentMs ?? performance.now() - start);
    }
  }

  /** Keeps the thread for later work, unless it has ended since its answer. */
  #rest(worker: Worker): void {
    if (worker.threadId === -1) return;
    worker
      .removeAllListeners()
      // It may run out of memory now.
      .on('error', () => {})
      .on('exit', () => {
        const at = this.#idle.indexOf(worker);
        if (at >= 0) this.#idle.splice(at, 1);
      });
    this.#idle.push(worker);
    clearTimeout(this.#idleTimer);
    this.#idleTimer = setTimeout(() => this.#idle.splice(0).forEach(end), IDLE_MS).unref();
  }
}

/** @returns characters, or bytes; without end where decoding would tell */
function lengthOf(searched: string | SearchedBody): number {
  if (typeof searched === 'string') return searched.length;
  return searched.decode === null ? searched.bytes.length : Number.POSITIVE_INFINITY;
}

function resultOf(worker: Worker, job: Job): Promise<JobResult> {
  return new Promise((resolve, reject) => {
    worker
      .removeAllListeners()
      .on('message', resolve)
      .on('error', reject)
      .on('exit', () => reject(new Error('the thread ended')))
      .postMessage(job);
  });
}

function end(worker: Worker): void {
  // What it has to say no longer matters, and it may have ended already.
  const ignore = () => {};
  worker.removeAllListeners().on('error', ignore).terminate().catch(ignore);
}
