/** Work in steps: it yields where other work may run before it goes on. */
export type Stepwise<T> = Generator<undefined, T, undefined>;

/** Runs work to its end at once. */
export function runAtOnce<T>(work: Stepwise<T>): T {
  let step = work.next();
  while (!step.done) step = work.next();
  return step.value;
}
