import { RE2JS } from 're2js';
import { messageOf } from '../lib/errors.ts';
import { RecentMap } from '../lib/recent-map.ts';
import type { Budget } from './cel/budget.ts';
import { expandedSize } from './pattern-size.ts';
import { refusal } from './policy-refused.ts';

/** A search costs its text's length times this size in the worst case; the largest documented pattern has 60. */
const MAX_PROGRAM = 1000;
const MAX_PATTERN = 1024;
/** What is larger before it is compiled may take a second to become too large a program; a few are smaller afterwards. */
const MAX_EXPANDED = 4 * MAX_PROGRAM;
const CACHED = 500;

/** Such as `\pL`, whose thousand ranges are put together anew for each. */
const UNICODE_CLASS = /\\p/gi;
const MAX_UNICODE_CLASSES = 50;

/** What compiling takes, in units of the budget: for each character, written out or not, and each Unicode class. */
const CHARACTER_COST = 500;
const EXPANDED_COST = 75;
const CLASS_COST = 10_000;

/** A unit of the budget, in milliseconds. */
const UNIT_MS = 30e-6;

/** RE2 in linear time: policies are written by tenants, and JavaScript's own engine can be held for ever. */
export class RegularExpression {
  readonly #compiled: RE2JS;
  readonly size: number;

  constructor(compiled: RE2JS) {
    this.#compiled = compiled;
    this.size = compiled.programSize();
  }

  /** @returns whether the pattern occurs anywhere in the text */
  test(text: string): boolean {
    return this.#compiled.test(text);
  }

  /** @returns the first match and its groups; null when there is none */
  first(text: string): string[] | null {
    const matcher = this.#compiled.matcher(text);
    if (!matcher.find()) return null;
    return Array.from({ length: matcher.groupCount() + 1 }, (_, group) => matcher.group(group) ?? '');
  }

  /**
   * @param replacement in which `$1` to `$99` stand for what groups matched, `$0` for the whole match
   * @param all whether every match is replaced, or the first alone; an empty one right behind another is none, as RE2
   *   has it
   * @throws {PolicyFailure} when it takes more than the budget holds
   */
  replace(text: string, replacement: string, all: boolean, budget: Budget): string {
    const matcher = this.#compiled.matcher(text);
    let result = '';
    let end = 0;
    let replaced = false;
    while (this.#find(matcher, text.length - end, budget)) {
      const [from, to] = [matcher.start(), matcher.end()];
      if (replaced && from === to && from === end) continue;
      result += text.slice(end, from) + expand(replacement, (group) => groupOf(matcher, group));
      end = to;
      replaced = true;
      if (!all) break;
    }
    return result + text.slice(end);
  }

  /**
   * Each search may look at all of the rest before it settles for less, which makes many of them quadratic. Most stop
   * right behind their match: what is charged is what it took.
   *
   * @param rest how much is left to be searched
   */
  #find(matcher: Matcher, rest: number, budget: Budget): boolean {
    const before = performance.now();
    const found = matcher.find();
    budget.spend(Math.min(this.size * rest, (performance.now() - before) / UNIT_MS));
    return found;
  }
}

type Matcher = ReturnType<RE2JS['matcher']>;

function groupOf(matcher: Matcher, group: number): string | null {
  return group <= matcher.groupCount() ? (matcher.group(group) ?? '') : null;
}

/** Two digits are taken only when there are so many groups; what is no group stays as it is. */
function expand(replacement: string, group: (number: number) => string | null): string {
  if (!replacement.includes('$')) return replacement;
  return replacement.replace(/\$(\d)(\d?)/g, (whole, one: string, two: string) => {
    const both = two === '' ? null : group(Number(one + two));
    return both ?? group(Number(one))?.concat(two) ?? whole;
  });
}

const cache = new RecentMap<string, RegularExpression>(CACHED);

/**
 * Compiles a pattern, or takes it from the cache: compiling is forty times dearer than searching.
 *
 * @throws Error naming what is wrong with the pattern
 */
export function regularExpression(pattern: string): RegularExpression {
  const expression = cache.get(pattern) ?? compile(pattern);
  cache.set(pattern, expression);
  return expression;
}

function compile(pattern: string): RegularExpression {
  if (pattern.length > MAX_PATTERN) throw new Error(`the regular expression is longer than ${MAX_PATTERN} characters`);
  if (unicodeClassesIn(pattern) > MAX_UNICODE_CLASSES) {
    throw new Error(`the regular expression has more than ${MAX_UNICODE_CLASSES} Unicode classes`);
  }
  if (expandedSize(pattern) > MAX_EXPANDED) throw tooLarge();
  const compiled = new RegularExpression(RE2JS.compile(pattern));
  if (compiled.size > MAX_PROGRAM) throw tooLarge();
  return compiled;
}

function tooLarge(): Error {
  return new Error('the regular expression is too large; repeat less');
}

/** @returns what compiling the pattern costs, in units of the budget; 0 when it is in the cache */
export function compileCost(pattern: string): number {
  return cache.has(pattern) ? 0 : patternCost(pattern);
}

/** @returns the same, whether it is in the cache or not */
export function patternCost(pattern: string): number {
  if (pattern.length > MAX_PATTERN) return 0;
  const expanded = Math.min(expandedSize(pattern), MAX_EXPANDED);
  return pattern.length * CHARACTER_COST + expanded * EXPANDED_COST + unicodeClassesIn(pattern) * CLASS_COST;
}

function unicodeClassesIn(pattern: string): number {
  return pattern.match(UNICODE_CLASS)?.length ?? 0;
}

/** @throws {PolicyRefused} when nothing is left for them */
export function chargeForPatterns(cost: number, budget: Budget): void {
  try {
    budget.spend(cost);
  } catch {
    throw refusal('ERR_NGROK_2261', 'the regular expressions of the policy are too large together');
  }
}

/**
 * @param budget of all patterns that stand in the policy together: a bind must not hold the process for long
 * @throws {PolicyRefused} for a pattern that stands in a policy and is not RE2, or is one too many
 */
export function checkedPattern(pattern: string, field: string, budget: Budget): RegularExpression {
  chargeForPatterns(patternCost(pattern), budget);
  try {
    return regularExpression(pattern);
  } catch (error) {
    throw refusal('ERR_NGROK_2261', messageOf(error), field);
  }
}
