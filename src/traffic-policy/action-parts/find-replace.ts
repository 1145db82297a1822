import { z } from 'zod';
import type { ActionContext } from '../action-context.ts';
import { PolicyFailure } from '../policy-errors.ts';
import type { PolicyScope } from '../policy-subjects.ts';
import { checkedPattern, compileCost, type RegularExpression, regularExpression } from '../regular-expression.ts';
import type { TextReplacement } from '../text-replacements.ts';

/** Servers reject longer URLs anyway. */
const MAX_URL = 16 * 1024;
const MAX_REPLACED = 64 * 1024;

const ABSOLUTE = /^[a-z][a-z0-9+.-]*:\/\//i;

/** Memory of a compiled pattern. */
const BYTES_PER_INSTRUCTION = 200;

export interface ReplacedUrl {
  readonly url: string;
  /** The first match and its groups; empty without a pattern or match. */
  readonly matches: readonly string[];
}

export class UrlReplacement {
  readonly #pattern: ((scope: PolicyScope) => RegularExpression) | null;
  readonly #to: (scope: PolicyScope) => string;
  readonly #all: boolean;

  /**
   * @param from null for the whole URL
   * @throws {PolicyRefused} for a pattern that is not RE2 or an invalid expression
   */
  constructor(from: string | null, to: string, all: boolean, context: ActionContext) {
    this.#pattern = from === null ? null : patternOf(from, context);
    const template = context.template(to, 'config.to');
    this.#to = (scope) => template.text(scope);
    this.#all = all;
  }

  /**
   * Null when nothing matches.
   *
   * @throws {PolicyFailure} when a template has no value, or its value is not RE2
   */
  apply(url: string, scope: PolicyScope): ReplacedUrl | null {
    if (url.length > MAX_URL) throw new PolicyFailure('ERR_NGROK_2300', `the URL is longer than ${MAX_URL} characters`);
    const to = this.#to(scope);
    if (this.#pattern === null) return { url: to, matches: [] };
    const pattern = this.#pattern(scope);
    scope.budget.spend(pattern.size * url.length);
    const first = pattern.first(url);
    if (first === null) return null;
    const replaced = pattern.replace(url, to, { all: this.#all, budget: scope.budget, maxLength: MAX_REPLACED });
    // An absolute URL cannot follow the beginning of another: `https://a.comhttps://b.com/` names the host `a.comhttps`.
    return { url: ABSOLUTE.test(to) ? replaced.slice(first.start) : replaced, matches: first.groups };
  }
}

/**
 * Reads a pattern, which is compiled now unless it has `${…}`.
 *
 * @throws {PolicyRefused} for a pattern that is not RE2 or an invalid expression
 */
export function patternOf(
  from: string,
  context: ActionContext,
  field = 'config.from',
): (scope: PolicyScope) => RegularExpression {
  const template = context.template(from, field);
  if (template.constant !== null) {
    const pattern = checkedPattern(template.constant, field, context.policy.patterns);
    context.policy.memory += pattern.size * BYTES_PER_INSTRUCTION;
    return () => pattern;
  }
  return (scope) => {
    try {
      const text = template.text(scope);
      scope.budget.spend(compileCost(text));
      return regularExpression(text);
    } catch (error) {
      if (error instanceof PolicyFailure) throw error;
      // The cause is dropped: it quotes the pattern, which may have parts of the request in it.
      throw new PolicyFailure('ERR_NGROK_3901', `${field} did not produce a valid regular expression`);
    }
  };
}

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
