import { type Clock, systemClock } from './clock.ts';

/** Raised when work did not finish in time. */
export class DeadlineExceeded extends Error {
  constructor(what: string, ms: number) {
    super(`${what} did not finish within ${ms / 1000} s`);
    this.name = 'DeadlineExceeded';
  }
}

/**
 * Waits for a promise that may never settle.
 *
 * @param what names the work in the error
 * @param ms milliseconds to wait
 * @param onLate cleans up a value that arrives after the deadline
 * @throws {DeadlineExceeded} when the time is over, or the promise's rejection
 */
export function withDeadline<T>(
  promise: Promise<T>,
  what: string,
  ms: number,
  onLate: (value: T) => void = () => {},
  clock: Clock = systemClock,
): Promise<T> {
  return new Promise((resolve, reject) => {
    let late = false;
    const cancel = clock.after(ms, () => {
      late = true;
      reject(new DeadlineExceeded(what, ms));
    });
    promise.then(
      (value) => {
        cancel();
        if (late) onLate(value);
        else resolve(value);
      },
      (error) => {
        cancel();
        // After the deadline the caller already has an error.
        if (!late) reject(error);
      },
    );
  });
}

/** Callbacks by signal. Each signal gets a single listener: Node warns of a leak at more than ten. */
const followers = new WeakMap<AbortSignal, Set<() => void>>();

/** Calls `end` when the signal aborts. Returns a function that removes the callback. */
function follow(signal: AbortSignal, end: () => void): () => void {
  const known = followers.get(signal);
  const ends = known ?? new Set();
  if (!known) {
    followers.set(signal, ends);
    signal.addEventListener('abort', () => {
      for (const each of ends) each();
    });
  }
  ends.add(end);
  return () => ends.delete(end);
}

/** Runs work with its own signal, which aborts with the outer one and at the end of the work. */
export async function withOwnSignal<T>(outer: AbortSignal, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const own = new AbortController();
  const onOuter = () => own.abort(outer.reason);
  const unfollow = follow(outer, onOuter);
  if (outer.aborted) onOuter();
  try {
    return await work(own.signal);
  } finally {
    unfollow();
    own.abort();
  }
}

/**
 * Runs work with a deadline and a signal. Rejects as soon as the signal aborts, even if the work ignores it.
 *
 * AbortSignal.any() would leak memory with each call on a long-lived signal (Node 20), and AbortSignal.timeout() would
 * keep its timer after the work.
 *
 * @param what names the work in the error
 * @param ms milliseconds to wait
 * @param outer aborts the work as well
 * @throws {DeadlineExceeded} when the time is over
 * @throws the outer signal's reason when it aborts, or the work's rejection
 */
export async function withSignal<T>(
  work: (signal: AbortSignal) => Promise<T>,
  what: string,
  ms: number,
  outer?: AbortSignal,
  clock: Clock = systemClock,
): Promise<T> {
  outer?.throwIfAborted();
  const inner = new AbortController();
  const unfollow = outer && follow(outer, () => inner.abort(outer.reason));
  const cancel = clock.after(ms, () => inner.abort(new DeadlineExceeded(what, ms)));
  try {
    return await new Promise((resolve, reject) => {
      inner.signal.addEventListener('abort', () => reject(inner.signal.reason));
      work(inner.signal).then(resolve, reject);
    });
  } finally {
    cancel();
    unfollow?.();
  }
}

export interface Timed {
  /** @param now milliseconds of `performance.now()` */
  checkTime(now: number): void;
}

/** Checks the deadlines of all its members at intervals; a timer for each would cost more. */
export class DeadlineSweep<T extends Timed> implements Iterable<T> {
  readonly #members = new Set<T>();
  #timer: NodeJS.Timeout | undefined;

  /** @param interval milliseconds */
  constructor(private readonly interval: number) {}

  add(member: T): void {
    this.#members.add(member);
    this.#timer ??= setInterval(() => this.#sweep(), this.interval).unref();
  }

  delete(member: T): boolean {
    if (!this.#members.delete(member)) return false;
    if (this.#members.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    return true;
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#members.values();
  }

  #sweep(): void {
    const now = performance.now();
    for (const member of [...this.#members]) member.checkTime(now);
  }
}

/** Bytes per second below which a client counts as stalled; a trickle would keep a place for ever. */
const MIN_RATE = 240;

/** Milliseconds of a period. With the interval between two checks, a client is disconnected after about 30 s. */
export const PROGRESS_MS = 25_000;

/** Whether a client that is waited for makes progress: its bytes have to move at a minimum rate in each period. */
export class Progress {
  /**
   * @param period milliseconds
   * @param since milliseconds of `performance.now()`
   * @param from bytes that have moved so far
   */
  constructor(
    private readonly period: number,
    private since: number,
    private from: number,
  ) {}

  /** Starts a new period, when the client is not waited for. */
  restart(now: number, bytes: number): void {
    this.since = now;
    this.from = bytes;
  }

  /** Whether too few bytes have moved for a whole period in which the client was waited for. */
  isStalled(now: number, bytes: number): boolean {
    if ((bytes - this.from) * 1000 >= MIN_RATE * this.period) this.restart(now, bytes);
    return now - this.since >= this.period;
  }
}
