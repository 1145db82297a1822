import { z } from 'zod';
import type { ActionContext } from '../action-context.ts';
import type { PolicyScope } from '../policy-subjects.ts';
import type { TextReplacement } from '../text-replacements.ts';
import { patternOf } from './url-replacement.ts';

/** Each pattern is compiled without a pause. */
const MAX_REPLACEMENTS = 32;

export const Replacement = z.strictObject({ from: z.string().min(1), to: z.string().optional() });

/** The member `replacements` of the actions that find and replace. */
export function replacementsOf<Item extends z.ZodType>(item: Item) {
  return z.array(item).min(1).max(MAX_REPLACEMENTS);
}

/** @throws {PolicyRefused} for a pattern that is not RE2 or an invalid expression */
export function prepareReplacement(
  { from, to = '' }: z.output<typeof Replacement>,
  field: string,
  context: ActionContext,
): (scope: PolicyScope) => TextReplacement {
  const pattern = patternOf(from, context, `${field}.from`);
  const template = context.template(to, `${field}.to`);
  return (scope) => ({ pattern: pattern(scope), to: template.text(scope) });
}
