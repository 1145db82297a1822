import type { Clock } from '../../../lib/clock.ts';
import { DeadlineExceeded, withDeadline } from '../../../lib/deadline.ts';
import { AgentError, RETRY_AFTER_S } from '../../errors/agent-error.ts';

/** More calls than any device has tunnels; what comes on top is refused. */
const MAX_WAITING = 4096;
/** With a few calls in hand the SDK starts the next one without a detour through JavaScript: 20 % faster (measured). */
const AT_ONCE = 4;

/** One call of the SDK that waits for the gateway's answer. */
export interface RpcCall<T> {
  /** Names the call in the error when it misses its deadline. */
  what: string;
  /** Milliseconds, from when the call really starts. */
  deadlineMs: number;
  start(): Promise<T>;
  /** Takes a result for which nobody waits any more. */
  discard(result: T): void;
}

interface Job {
  run(): Promise<void>;
  reject(error: Error): void;
}

/**
 * One session's calls, a few at a time. The SDK runs them one after another, behind a lock and without any time
 * limit; queueing here lets each deadline count from about the call's own start, and lets what has not started be
 * refused at once when the session is lost.
 */
export class RpcQueue {
  readonly #waiting: Job[] = [];
  readonly #running = new Set<Job>();
  #closed: Error | null = null;

  /**
   * @param onHang hears of a call without an answer; every later one would wait behind it for ever
   * @param atOnce how many calls the SDK is given at a time
   */
  constructor(
    private readonly clock: Clock,
    private readonly onHang: (error: DeadlineExceeded) => void,
    private readonly atOnce = AT_ONCE,
  ) {}

  /**
   * @param urgent puts the call before all that wait
   * @throws {DeadlineExceeded} when the gateway did not answer; what {@link close} was given; what the call throws
   */
  call<T>(call: RpcCall<T>, urgent = false): Promise<T> {
    if (this.#closed) return Promise.reject(this.#closed);
    if (this.#waiting.length >= MAX_WAITING) {
      const message = `${MAX_WAITING} requests to the gateway are waiting already`;
      return Promise.reject(new AgentError('ERR_AGENT_BUSY', message, { retryAfter: RETRY_AFTER_S }));
    }
    return new Promise((resolve, reject) => {
      const job = { run: () => this.#perform(call, resolve, reject), reject };
      if (urgent) this.#waiting.unshift(job);
      else this.#waiting.push(job);
      this.#next();
    });
  }

  /** Fails everything that waits or runs, and every later call, with the error. */
  close(error: Error): void {
    this.#closed ??= error;
    for (const job of this.#waiting.splice(0)) job.reject(error);
    for (const job of this.#running) job.reject(error);
  }

  #next(): void {
    if (this.#running.size >= this.atOnce) return;
    const job = this.#waiting.shift();
    if (!job) return;
    this.#running.add(job);
    void job.run().finally(() => {
      this.#running.delete(job);
      this.#next();
    });
  }

  async #perform<T>(call: RpcCall<T>, resolve: (value: T) => void, reject: (error: unknown) => void): Promise<void> {
    try {
      const result = await withDeadline(call.start(), call.what, call.deadlineMs, call.discard, this.clock);
      if (this.#closed) call.discard(result);
      else resolve(result);
    } catch (error) {
      // First of all: whoever had to do with the silence learns it so, and everybody else that the session is over.
      reject(error);
      if (error instanceof DeadlineExceeded) this.onHang(error);
    }
  }
}
