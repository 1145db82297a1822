import type { Duplex } from 'node:stream';
import { setTimeout as delay, setImmediate as tick } from 'node:timers/promises';

interface Patience {
  /** Time limit in milliseconds. */
  withinMs?: number;
  /** Milliseconds between checks. */
  everyMs?: number;
}

/** What is about to happen is seen in the next turns of the event loop; longer waits leave the processor to others. */
const QUICK_CHECKS = 50;

/**
 * Resolves when the condition holds.
 *
 * @param what name of the condition, for the error
 */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string,
  { withinMs = 30_000, everyMs }: Patience = {},
): Promise<void> {
  const start = performance.now();
  for (let checks = 0; !(await condition()); checks++) {
    if (performance.now() - start > withinMs) throw new Error(`${what}: still not after ${withinMs} ms`);
    await (everyMs === undefined && checks < QUICK_CHECKS ? tick() : delay(everyMs ?? 2));
  }
}

/** The promise's value; rejects after the time limit with the name of the missing event. */
export async function within<T>(promise: Promise<T>, what: string, ms = 30_000): Promise<T> {
  const abort = new AbortController();
  const late = delay(ms, undefined, { signal: abort.signal }).then(() => {
    throw new Error(`${what}: still not after ${ms} ms`);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    abort.abort();
    late.catch(() => {});
  }
}

/** Resolves when a socket has closed, however its peer ended it. */
export async function closeOf(socket: Duplex): Promise<void> {
  if (!socket.closed) await new Promise<void>((resolve) => socket.once('close', () => resolve()));
}

/** Resolves after ten turns of the event loop, when pending work in this process has finished. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 10; turn++) await tick();
}

/** A promise that stays pending until `open` is called. */
export function gate(): { open: () => void; opened: Promise<void> } {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { open, opened };
}
