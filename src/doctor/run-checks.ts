import { withDeadline } from '../lib/deadline.ts';
import { messageOf } from '../lib/errors.ts';
import { type Check, type Finding, failed, NotKnown, skipped } from './finding.ts';

/** Milliseconds for each check, so that the whole takes no longer either: all of them run at the same time. */
const CHECK_MS = 9_500;

/**
 * Runs all checks and puts what they found in their order.
 *
 * @param secrets never appear in the result, whatever a gateway or the system quotes
 * @param patience how many times longer than usual each may take
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
    // Whatever stands in the way of a check is itself something to know.
    return [{ check: name, title, ...failed(`check failed: ${messageOf(error)}`, null) }];
  }
}

function redact(text: string, secrets: readonly string[]): string {
  return secrets.reduce((shown, secret) => (secret === '' ? shown : shown.replaceAll(secret, '(not shown)')), text);
}
