import type { Clock } from '../../lib/time/clock.ts';
import { DeadlineExceeded, withDeadline } from '../../lib/time/deadline.ts';
import { AgentError, RETRY_AFTER_S } from '../errors/agent-error.ts';

/** Calls beyond this limit are refused; no device has as many tunnels. */
const MAX_WAITING = 4096;
export interface QueuedCall<T> {
  /** Names the call in the error of a missed deadline. */
  what: string;
  /** From the actual start of the call. */
  deadlineMs: number;
  start(): Promise<T>;
  /** Receives a result that nobody waits for. */
  discard(result: T): void;
}

interface Job {
  run(): Promise<void>;
  reject(error: Error): void;
}

/**
 * Runs the calls of one session, a few at a time. It lets each deadline count from about the start of its call, and
 * rejects calls that have not started at once when the session is lost.
 */
export class RpcQueue {
  readonly #waiting: Job[] = [];
  readonly #running = new Set<Job>();
  #closed: Error | null = null;

  /** @param onHang called when a call is not answered, which blocks every later one */
  constructor(
    private readonly clock: Clock,
    private readonly onHang: (error: DeadlineExceeded) => void,
    private readonly atOnce: number,
  ) {}

  /**
   * @param urgent puts the call first in the queue
   * @throws {DeadlineExceeded} when the gateway did not answer; the error of {@link close}; what the call throws
   */
  call<T>(call: QueuedCall<T>, urgent = false): Promise<T> {
    if (this.#closed) return Promise.reject(this.#closed);
    if (this.#waiting.length >= MAX_WAITING) {
      const message = `too many requests to the gateway: ${MAX_WAITING} are waiting; retry later`;
      return Promise.reject(new AgentError('ERR_AGENT_BUSY', message, { retryAfter: RETRY_AFTER_S }));
    }
    return new Promise((resolve, reject) => {
      const job = { run: () => this.#perform(call, resolve, reject), reject };
      if (urgent) this.#waiting.unshift(job);
      else this.#waiting.push(job);
      this.#next();
    });
  }

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

  async #perform<T>(call: QueuedCall<T>, resolve: (value: T) => void, reject: (error: unknown) => void): Promise<void> {
    try {
      const result = await withDeadline(call.start(), call.what, call.deadlineMs, call.discard, this.clock);
      if (this.#closed) call.discard(result);
      else resolve(result);
    } catch (error) {
      // Before onHang ends the session, so that this call fails with its own deadline.
      reject(error);
      if (error instanceof DeadlineExceeded) this.onHang(error);
    }
  }
}
