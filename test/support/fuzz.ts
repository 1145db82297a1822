import type { Parameters } from 'fast-check';

/** The same in every run of `npm test`, so that only code changes can cause failures. */
const SEED = 20_261_121;

/** Multiplier for the number of inputs. */
const FACTOR = Number(process.env.FUZZ_FACTOR ?? 1);
if (!(FACTOR > 0))
  throw new Error('invalid FUZZ_FACTOR: it multiplies the number of inputs; use a positive number, for example 100');

/** Time limit of a property in milliseconds; further inputs are skipped. */
export const FUZZ_MS = FACTOR > 1 ? 300_000 : 30_000;

/**
 * The parameters of fast-check. `FUZZ_SEED` is the first seed, or `random`; a failure is reported with its seed and
 * can be repeated with it.
 *
 * @param runs inputs in `npm test`; `FUZZ_FACTOR` multiplies them
 */
export function fuzz<T = unknown>(runs: number): Parameters<T> {
  const seed = process.env.FUZZ_SEED ?? String(SEED);
  return {
    numRuns: Math.ceil(runs * FACTOR),
    ...(seed !== 'random' && { seed: Number(seed) }),
    // A fifth of the time is left for shrinking a failing input, and for the rest of the test.
    interruptAfterTimeLimit: 0.8 * FUZZ_MS,
  };
}
