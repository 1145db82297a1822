/** Bounds of the delays between retries. */
export interface BackoffPolicy {
  /** Upper bound of the first delay, in milliseconds. */
  baseMs: number;
  /** Upper bound of every delay, in milliseconds. */
  maxMs: number;
}

/** The longest delay after so many earlier failures: it doubles with each, up to `maxMs`. */
export function backoffCeiling(attempt: number, { baseMs, maxMs }: BackoffPolicy): number {
  return Math.min(maxMs, baseMs * 2 ** Math.min(attempt, 30));
}

/**
 * Full jitter: uniform in [0, {@link backoffCeiling}), so that a fleet does not retry in step.
 *
 * @param attempt number of earlier failures
 * @param random source of randomness in [0, 1)
 * @returns the delay in whole milliseconds
 */
export function backoffDelay(attempt: number, policy: BackoffPolicy, random: () => number = Math.random): number {
  return Math.floor(random() * backoffCeiling(attempt, policy));
}
