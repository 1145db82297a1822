import { setImmediate as nextTurn } from 'node:timers/promises';

/** Work in steps: it yields where other work may run before it goes on. */
export type Stepwise<T> = Generator<undefined, T, undefined>;

/** Runs work to its end at once. */
export function runAtOnce<T>(work: Stepwise<T>): T {
  let step = work.next();
  while (!step.done) step = work.next();
  return step.value;
}

/** Runs steps until the work is done or has taken some time. */
export function runFor<T>(work: Stepwise<T>, ms: number, now: () => number): IteratorResult<undefined, T> {
  const end = now() + ms;
  let step = work.next();
  while (!step.done && now() < end) step = work.next();
  return step;
}

/** What work takes of each turn of the event loop. */
const TURN_MS = 5;

/** Runs work to its end in several turns of the event loop. */
export async function runInTurns<T>(work: Stepwise<T>): Promise<T> {
  for (;;) {
    const step = runFor(work, TURN_MS, () => performance.now());
    if (step.done) return step.value;
    await nextTurn();
  }
}
