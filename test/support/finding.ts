/** What a fault test found out. */
export interface Measurement {
  /** What was provoked, as a table names it. */
  fault: string;
  /** How often; once, when left out. */
  tried?: number;
  /** Answers, tunnels or names that were gone afterwards; none, when left out. */
  lost?: number;
  /** Milliseconds that things took to recover. */
  recovery?: readonly number[];
  /** Whatever else is worth knowing. */
  note?: string;
}

/** A line of the file in which findings are collected; `file` is the test's, without its suffix. */
export type Finding = Required<Measurement> & { file: string };

/** Names that file; unset: nothing is collected. */
export const FINDINGS_VARIABLE = 'FAULTS_FINDINGS';

/** The value below which a share of the values lies; NaN when there are none. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

export const seconds = (ms: number) => `${(ms / 1000).toFixed(2)} s`;
