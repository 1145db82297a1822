import { messageOf } from '../lib/errors.ts';
import { maskUrl } from '../lib/masking/mask-url.ts';
import { MASK } from '../lib/masking/secret-names.ts';
import { withDeadline } from '../lib/time/deadline.ts';
import { type Check, type Finding, failed, NotKnown, skipped } from './finding.ts';

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
