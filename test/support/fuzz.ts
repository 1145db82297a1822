import type { Parameters } from 'fast-check';

/** The same in every run of `npm test`, so that only a change of the code can make it fail. */
const SEED = 20_261_121;

/** How many times as many inputs as usual are tried. */
const FACTOR = Number(process.env.FUZZ_FACTOR ?? 1);
if (!(FACTOR > 0)) throw new Error('FUZZ_FACTOR is how many times as many inputs as usual are tried, such as 100');

/** Longest time for a property, in milliseconds: what is not tried by then is left out. */
export const FUZZ_MS = FACTOR > 1 ? 300_000 : 30_000;

/**
 * How fast-check is to try a property. `FUZZ_SEED` is the seed to begin with, or `random`; what fails is reported with
 * its seed, and comes back with it.
 *
 * @param runs how many inputs are tried in `npm test`; `FUZZ_FACTOR` multiplies them
 */
export function fuzz<T = unknown>(runs: number): Parameters<T> {
  const seed = process.env.FUZZ_SEED ?? String(SEED);
  return {
    numRuns: Math.ceil(runs * FACTOR),
    ...(seed !== 'random' && { seed: Number(seed) }),
    // A fifth is left for making a failing input smaller, and for what follows.
    interruptAfterTimeLimit: 0.8 * FUZZ_MS,
  };
}
