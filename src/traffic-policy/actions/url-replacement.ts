import type { ActionContext } from '../action-context.ts';
import { PolicyFailure } from '../policy-failure.ts';
import type { PolicyScope } from '../policy-subjects.ts';
import { checkedPattern, compileCost, type RegularExpression, regularExpression } from '../regular-expression.ts';

/** Longer ones are refused by servers anyway. */
const MAX_URL = 16 * 1024;

/** What replacing in a URL came to. */
export interface Replacement {
  readonly url: string;
  /** What the pattern and its groups matched first; empty when there is no pattern or no match. */
  readonly matches: readonly string[];
}

/** Replaces what matches a pattern in a URL, pattern and replacement being templates; `null` for no match. */
export class UrlReplacement {
  readonly #pattern: ((scope: PolicyScope) => RegularExpression) | null;
  readonly #to: (scope: PolicyScope) => string;
  readonly #all: boolean;

  /**
   * @param from null for the whole URL
   * @param all whether all matches are replaced, or the first alone
   * @throws {PolicyRefused} for a pattern that is not RE2 or a wrong expression
   */
  constructor(from: string | null, to: string, all: boolean, context: ActionContext) {
    this.#pattern = from === null ? null : patternOf(from, context);
    const template = context.template(to, 'config.to');
    this.#to = (scope) => template.text(scope);
    this.#all = all;
  }

  /** @throws {PolicyFailure} when a template has no value, or the pattern it makes is not RE2 */
  apply(url: string, scope: PolicyScope): Replacement | null {
    if (url.length > MAX_URL) throw new PolicyFailure('ERR_NGROK_2300', 'the URL is too long to be replaced in');
    const to = this.#to(scope);
    if (this.#pattern === null) return { url: to, matches: [] };
    const pattern = this.#pattern(scope);
    scope.budget.spend(pattern.size * url.length);
    const matches = pattern.first(url);
    return matches && { url: pattern.replace(url, to, this.#all, scope.budget), matches };
  }
}

function patternOf(from: string, context: ActionContext): (scope: PolicyScope) => RegularExpression {
  const template = context.template(from, 'config.from');
  if (template.constant !== null) {
    const pattern = checkedPattern(template.constant, 'config.from', context.policy.patterns);
    return () => pattern;
  }
  return (scope) => {
    try {
      const text = template.text(scope);
      scope.budget.spend(compileCost(text));
      return regularExpression(text);
    } catch (error) {
      if (error instanceof PolicyFailure) throw error;
      // Without the cause: it repeats the pattern, with what of the request is in it.
      throw new PolicyFailure('ERR_NGROK_3901', 'config.from makes no regular expression of this request');
    }
  };
}
