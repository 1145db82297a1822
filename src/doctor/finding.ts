/** `skipped`: check failed, or does not apply; no problem by itself. */
export type FindingStatus = 'ok' | 'failed' | 'skipped';

export interface Finding {
  /** Stable name of the check, for programs. */
  check: string;
  /** What was looked at, for people. */
  title: string;
  status: FindingStatus;
  /** What was found, or why nothing was looked at. */
  detail: string;
  /** What to do about it; null when there is nothing to do. */
  advice: string | null;
}

/** Looks at one thing; several lines when several things of a kind are wrong. */
export interface Check {
  name: string;
  title: string;
  run(): Promise<Result | Result[]>;
}

export function check(name: string, title: string, run: Check['run']): Check {
  return { name, title, run };
}

/** What a check found; name and title are added by whoever runs it. */
export type Result = Pick<Finding, 'status' | 'detail' | 'advice'>;

export const ok = (detail: string): Result => ({ status: 'ok', detail, advice: null });
export const failed = (detail: string, advice: string | null): Result => ({ status: 'failed', detail, advice });
export const skipped = (detail: string): Result => ({ status: 'skipped', detail, advice: null });

/** Raised by what a check depends on, when that is not known: the check is skipped then, as the reason is said elsewhere. */
export class NotKnown extends Error {}

/** Lines for many things of a kind: those that are wrong one by one, up to here, and one for all the others. */
const MAX_LINES = 10;

/**
 * Puts the results for many things together so that they fit on a screen.
 *
 * @param good says how many are as they should be
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
