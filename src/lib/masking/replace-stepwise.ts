import type { Stepwise } from '../stepwise.ts';

/** Matches in one step, which take less than a millisecond. */
const AT_ONCE = 200;

/**
 * Replaces matches in a text that may be long.
 *
 * @param replacement null: the match stays as it is
 */
export function* replaceStepwise(
  text: string,
  pattern: RegExp,
  replacement: (match: RegExpExecArray) => string | null,
): Stepwise<string> {
  let [replaced, copied, count] = ['', 0, 0];
  for (const match of text.matchAll(pattern)) {
    if (++count % AT_ONCE === 0) yield;
    const instead = replacement(match);
    if (instead === null) continue;
    replaced += text.slice(copied, match.index) + instead;
    copied = match.index + match[0].length;
  }
  return replaced + text.slice(copied);
}
