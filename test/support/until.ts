import { setTimeout as delay, setImmediate as tick } from 'node:timers/promises';

interface Patience {
  /** Milliseconds after which to give up. */
  withinMs?: number;
  /** Milliseconds between two looks; 0 looks in every turn of the event loop. */
  everyMs?: number;
}

/**
 * Resolves when the condition holds.
 *
 * @param what what the condition waits for, as the error names it
 */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string,
  { withinMs = 5_000, everyMs = 0 }: Patience = {},
): Promise<void> {
  const start = performance.now();
  while (!(await condition())) {
    if (performance.now() - start > withinMs) throw new Error(`${what}: still not after ${withinMs} ms`);
    await (everyMs === 0 ? tick() : delay(everyMs));
  }
}

/** The promise's value; fails when it takes longer, and says what was missing. */
export async function within<T>(promise: Promise<T>, what: string, ms = 5_000): Promise<T> {
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

/** Resolves after ten turns of the event loop: everything under way in this process has arrived. */
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
