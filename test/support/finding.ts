/** The result of a fault test. */
export interface Measurement {
  /** The name of the injected fault. */
  fault: string;
  /** How often it was injected; once by default. */
  tried?: number;
  /** Responses, tunnels or names that were lost; zero by default. */
  lost?: number;
  /** Recovery times in milliseconds. */
  recovery?: readonly number[];
  /** Further facts. */
  note?: string;
}

/** A line of the findings file; `file` is the test's file without its suffix. */
export type Finding = Required<Measurement> & { file: string };

/** Variable with the path of the findings file; unset: findings are not collected. */
export const FINDINGS_VARIABLE = 'FAULTS_FINDINGS';

/** The quantile of the values; NaN without any. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

export const seconds = (ms: number) => `${(ms / 1000).toFixed(2)} s`;
