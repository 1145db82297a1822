import type { RegularExpression } from './regular-expression.ts';

export interface TextReplacement {
  readonly pattern: RegularExpression;
  /** With `$1` to `$99` for groups, and `$0` for the whole match. */
  readonly to: string;
}

export interface ReplacedText {
  readonly text: string;
  /** The replacements that had a match, as policies read them. */
  readonly matches: readonly { readonly replacement_index: number; readonly matched_content: string }[];
}

/** Characters of a result. Texts have at most half as many. */
const MAX_LENGTH = 2 * 1024 * 1024;
/** Characters of a match that policies can read. */
const MAX_SHOWN = 4096;

const NO_BUDGET = { spend: () => {} };

/**
 * Replaces all matches in a text, one replacement after another.
 *
 * @throws {PolicyFailure} when the result is too long
 */
export function replaceAll(text: string, replacements: readonly TextReplacement[]): ReplacedText {
  const matches: { replacement_index: number; matched_content: string }[] = [];
  let result = text;
  for (const [replacement_index, { pattern, to }] of replacements.entries()) {
    const first = pattern.first(result);
    if (first === null) continue;
    matches.push({ replacement_index, matched_content: (first.groups[0] ?? '').slice(0, MAX_SHOWN) });
    result = pattern.replace(result, to, { all: true, budget: NO_BUDGET, maxLength: MAX_LENGTH });
  }
  return { text: result, matches };
}
