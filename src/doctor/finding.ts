/** `skipped`: the check does not apply, or could not run because of another problem. */
export type FindingStatus = 'ok' | 'failed' | 'skipped';

export interface Finding {
  /** Stable name of the check, for programs. */
  check: string;
  /** Name of the check, for people. */
  title: string;
  status: FindingStatus;
  /** The result, or why the check was skipped. */
  detail: string;
  /** How to fix it; null when no action is needed. */
  advice: string | null;
}

/** Checks one thing; returns several results when several items have problems. */
export interface Check {
  name: string;
  title: string;
  run(): Promise<Result | Result[]>;
}

export function check(name: string, title: string, run: Check['run']): Check {
  return { name, title, run };
}

/** A finding without the name and title of its check. */
export type Result = Pick<Finding, 'status' | 'detail' | 'advice'>;

export const ok = (detail: string): Result => ({ status: 'ok', detail, advice: null });
export const failed = (detail: string, advice: string | null): Result => ({ status: 'failed', detail, advice });
export const skipped = (detail: string): Result => ({ status: 'skipped', detail, advice: null });

/** Thrown when a check lacks its input: the check is skipped, because another check reports the reason. */
export class NotKnown extends Error {}

/** Problems of one check that are listed; one more line counts the others. */
const MAX_LINES = 10;

/**
 * Summarises the results for many items so that they fit on a screen.
 *
 * @param good formats the number of items without problems
 */
export function summarize(results: readonly Result[], good: (count: number) => string): Result[] {
  const wrong = results.filter(({ status }) => status === 'failed');
  const unknown = results.filter(({ status }) => status === 'skipped');
  const sound = results.length - wrong.length - unknown.length;
  return [
    ...(sound > 0 ? [ok(good(sound))] : []),
    ...wrong.slice(0, MAX_LINES),
    ...(wrong.length > MAX_LINES ? [failed(`and ${wrong.length - MAX_LINES} more`, null)] : []),
    ...unknown.slice(0, 1),
  ];
}
