/** Whether faults are provoked as often and as long as it takes (`npm run faults`), or a few times (`npm run test:machine`). */
export const FULL = process.env.FAULTS === 'full';

/** How often a fault is provoked, or for how long. */
export function rounds(counts: { short: number; full: number }): number {
  return FULL ? counts.full : counts.short;
}
