import { type Clock, systemClock } from './clock.ts';

/** Raised when work did not finish within its time. */
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
 * @param onLate receives the value when it arrives after the deadline, to clean it up
 * @param clock measures the time
 * @throws {DeadlineExceeded} when the time is over; else whatever the promise rejects with
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
    const callOff = clock.after(ms, () => {
      late = true;
      reject(new DeadlineExceeded(what, ms));
    });
    promise.then(
      (value) => {
        callOff();
        if (late) onLate(value);
        else resolve(value);
      },
      (error) => {
        callOff();
        // After the deadline nobody waits for the outcome any more; the caller was told already.
        if (!late) reject(error);
      },
    );
  });
}

/** What is to be done when a signal aborts: by one listener each, for of more than ten Node warns as of a leak. */
const followers = new WeakMap<AbortSignal, Set<() => void>>();

/** @returns ends the following; then nothing is left on the signal of whoever followed it */
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

/** Does work with a signal of its own, which aborts with the outer one, and when the work is done. */
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
 * Does work that a signal can end, within its time. Whatever the work does with the signal that it is given, nobody
 * waits for it any longer once that has aborted.
 *
 * Done by hand: AbortSignal.any() leaves a trace of every call on a signal that lives long (Node 20), and
 * AbortSignal.timeout() keeps its timer when the work is done.
 *
 * @param what names the work in the error
 * @param ms milliseconds to wait
 * @param outer ends the work, too
 * @param clock measures the time
 * @throws {DeadlineExceeded} when the time is over
 * @throws the outer signal's reason when that aborts; else whatever the work rejects with
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
  const callOff = clock.after(ms, () => inner.abort(new DeadlineExceeded(what, ms)));
  try {
    return await new Promise((resolve, reject) => {
      inner.signal.addEventListener('abort', () => reject(inner.signal.reason));
      work(inner.signal).then(resolve, reject);
    });
  } finally {
    callOff();
    unfollow?.();
  }
}
