/** Bounds of the delays between retries. */
export interface BackoffPolicy {
  /** Upper bound of the first delay, in milliseconds. */
  baseMs: number;
  /** Upper bound of every delay, in milliseconds. */
  maxMs: number;
}

/**
 * Full jitter: uniform in [0, min(maxMs, baseMs * 2^attempt)), so that a fleet does not retry in step.
 *
 * @param attempt number of earlier failures
 * @param random source of randomness in [0, 1)
 * @returns the delay in whole milliseconds
 */
export function backoffDelay(attempt: number, policy: BackoffPolicy, random: () => number = Math.random): number {
  const ceiling = Math.min(policy.maxMs, policy.baseMs * 2 ** Math.min(attempt, 30));
  return Math.floor(random() * ceiling);
}
