import { messageOf } from '../lib/errors.ts';
import { maskUrl } from '../lib/masking/mask-url.ts';
import { MASK } from '../lib/masking/secret-names.ts';
import { withDeadline } from '../lib/time/deadline.ts';

/** `skipped`: the check does not apply, or could not run because of another problem. */
export type FindingStatus = 'ok' | 'failed' | 'skipped';

export interface Finding {
  /** Stable name of the check, for programs. */
  check: string;
  title: string;
  status: FindingStatus;
  detail: string;
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

const MARKS: Readonly<Record<FindingStatus, string>> = { ok: '✔', failed: '✖', skipped: '-' };
const COLORS: Readonly<Record<FindingStatus, number>> = { ok: 32, failed: 31, skipped: 90 };

/** Renders the findings for people: one line each, with the advice below each problem. */
export function renderReport(findings: readonly Finding[], color: boolean): string {
  const width = Math.max(0, ...findings.map(({ title }) => title.length));
  const paint = (text: string, code: number) => (color ? `\u001b[${code}m${text}\u001b[0m` : text);
  const lines = findings.flatMap(({ status, title, detail, advice }, at) => {
    const repeated = findings[at - 1]?.title === title;
    const head = `${paint(MARKS[status], COLORS[status])} ${(repeated ? '' : title).padEnd(width)}  `;
    const shown = status === 'skipped' ? paint(detail, COLORS.skipped) : detail;
    return [head + shown, ...(advice === null ? [] : [`${' '.repeat(width + 4)}→ ${advice}`])];
  });
  const wrong = findings.filter(({ status }) => status === 'failed').length;
  const verdict =
    wrong === 0
      ? paint('No problems found.', COLORS.ok)
      : paint(`${wrong} ${wrong === 1 ? 'problem' : 'problems'}.`, COLORS.failed);
  return [...lines, '', verdict].join('\n');
}

/** Milliseconds for each check, and in total: all checks run concurrently. */
const CHECK_MS = 9_500;

/**
 * Runs all checks and returns their findings in order.
 *
 * @param secrets masked in the findings, even when an error quotes them, beside those in URLs
 */
export async function runChecks(
  checks: readonly Check[],
  secrets: readonly string[],
  patience: number,
): Promise<Finding[]> {
  const results = await Promise.all(checks.map((check) => runCheck(check, CHECK_MS * patience)));
  return results.flat().map((finding) => ({
    ...finding,
    detail: redact(finding.detail, secrets),
    advice: finding.advice === null ? null : redact(finding.advice, secrets),
  }));
}

async function runCheck({ name, title, run }: Check, deadlineMs: number): Promise<Finding[]> {
  try {
    const results = await withDeadline(run(), 'this', deadlineMs);
    return [results].flat().map((result) => ({ check: name, title, ...result }));
  } catch (error) {
    if (error instanceof NotKnown) return [{ check: name, title, ...skipped(error.message) }];
    return [{ check: name, title, ...failed(`check failed: ${messageOf(error)}`, null) }];
  }
}

function redact(text: string, secrets: readonly string[]): string {
  return maskUrl(secrets.reduce((shown, secret) => (secret === '' ? shown : shown.replaceAll(secret, MASK)), text));
}
