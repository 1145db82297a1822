import { RE2JS } from 're2js';
import { BoundedMap } from '../lib/bounded-map.ts';
import { messageOf } from '../lib/errors.ts';
import type { Budget } from './cel/budget.ts';
import { PolicyFailure, refusal } from './policy-errors.ts';

/** In the worst case, a search costs the length of its text times this size. The largest documented pattern has 60. */
const MAX_PROGRAM = 1000;
const MAX_PATTERN = 1024;
/** Larger patterns may take a second to compile, only to exceed MAX_PROGRAM. A few patterns shrink when compiled. */
const MAX_EXPANDED = 4 * MAX_PROGRAM;
const CACHED = 500;

/** For example `\pL`: each use builds its thousand ranges again. */
const UNICODE_CLASS = /\\p/gi;
const MAX_UNICODE_CLASSES = 50;

/** The cost of compiling, in units of the budget: per character, per expanded character and per Unicode class. */
const CHARACTER_COST = 500;
const EXPANDED_COST = 75;
const CLASS_COST = 10_000;

/** What is compiled without a pause may cost about as much as 20 ms. The largest pattern of characters alone costs less. */
const MAX_COST_AT_ONCE = 600_000;

const UNIT_MS = 30e-6;

/** An RE2 expression, which takes linear time: tenants write the policies, and JavaScript's engine may never finish. */
export class RegularExpression {
  readonly size: number;

  constructor(private readonly compiled: RE2JS) {
    this.size = compiled.programSize();
  }

  get source(): string {
    return this.compiled.pattern();
  }

  test(text: string): boolean {
    return this.compiled.test(text);
  }

  /** @returns where the first match starts, and its text and groups; null without a match */
  first(text: string): { start: number; groups: string[] } | null {
    const matcher = this.compiled.matcher(text);
    if (!matcher.find()) return null;
    const groups = Array.from({ length: matcher.groupCount() + 1 }, (_, group) => matcher.group(group) ?? '');
    return { start: matcher.start(), groups };
  }

  /**
   * @param replacement with `$1` to `$99` for groups and `$0` for the whole match
   * @param all as in RE2, an empty match right after another is ignored
   * @throws {PolicyFailure} when it exceeds the budget, or the result is longer than `maxLength`
   */
  replace(
    text: string,
    replacement: string,
    {
      all,
      budget,
      maxLength,
    }: {
      /** Whether to replace all matches, or the first one only. */
      all: boolean;
      budget: Pick<Budget, 'spend'>;
      /** Characters of the result: many short matches and a long replacement multiply. */
      maxLength: number;
    },
  ): string {
    const matcher = this.compiled.matcher(text);
    let result = '';
    let end = 0;
    let replaced = false;
    while (this.#find(matcher, text.length - end, budget)) {
      const [from, to] = [matcher.start(), matcher.end()];
      if (replaced && from === to && from === end) continue;
      result += text.slice(end, from) + expand(replacement, (group) => groupOf(matcher, group));
      if (result.length > maxLength) {
        throw new PolicyFailure('ERR_NGROK_2300', `the result is longer than ${maxLength} characters`);
      }
      end = to;
      replaced = true;
      if (!all) break;
    }
    return result + text.slice(end);
  }

  /**
   * Charges each search for the time it took. It may scan the whole rest, which makes many searches quadratic; most stop
   * right after their match.
   */
  #find(matcher: Matcher, rest: number, budget: Pick<Budget, 'spend'>): boolean {
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

/** Reads two digits only when there are enough groups; leaves references to missing groups unchanged. */
function expand(replacement: string, group: (number: number) => string | null): string {
  if (!replacement.includes('$')) return replacement;
  return replacement.replace(/\$(\d)(\d?)/g, (whole, one: string, two: string) => {
    const both = two === '' ? null : group(Number(one + two));
    return both ?? group(Number(one))?.concat(two) ?? whole;
  });
}

const cache = new BoundedMap<string, RegularExpression>(CACHED);

/**
 * Compiling takes forty times as long as searching.
 *
 * @throws Error for an invalid pattern
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
  return new Error('the regular expression is too large; use fewer repetitions');
}

/** @returns the cost of compiling the pattern, in units of the budget; 0 when it is cached */
export function compileCost(pattern: string): number {
  return cache.has(pattern) ? 0 : patternCost(pattern);
}

export function patternCost(pattern: string): number {
  if (pattern.length > MAX_PATTERN) return 0;
  const expanded = Math.min(expandedSize(pattern), MAX_EXPANDED);
  return pattern.length * CHARACTER_COST + expanded * EXPANDED_COST + unicodeClassesIn(pattern) * CLASS_COST;
}

function unicodeClassesIn(pattern: string): number {
  return pattern.match(UNICODE_CLASS)?.length ?? 0;
}

/** @throws {PolicyRefused} when the budget is exceeded */
export function chargeForPatterns(cost: number, budget: Budget): void {
  try {
    budget.spend(cost);
  } catch {
    throw refusal('ERR_NGROK_2261', 'the regular expressions of the policy are too large in total');
  }
}

/** @throws {PolicyRefused} when compiling patterns of this cost without a pause would block the process for long */
export function requireQuickPatterns(cost: number, field = ''): void {
  if (cost > MAX_COST_AT_ONCE) {
    const problem = 'the regular expressions of one expression or action are too large in total; use shorter ones';
    throw refusal('ERR_NGROK_2261', problem, field);
  }
}

/** @throws {PolicyRefused} for a pattern that is not RE2 or exceeds the budget of all patterns of the policy together */
export function checkedPattern(pattern: string, field: string, budget: Budget): RegularExpression {
  const cost = patternCost(pattern);
  requireQuickPatterns(cost, field);
  chargeForPatterns(cost, budget);
  try {
    return regularExpression(pattern);
  } catch (error) {
    throw refusal('ERR_NGROK_2261', messageOf(error), field);
  }
}

/** The parts of a pattern: literal text, single characters and classes, the start and end of groups, repetitions. */
const PART =
  /\\Q.*?(?:\\E|$)|\\[pPx]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|\[:\^?[a-z]+:\]|[^\]\\])*\]|\(\?[a-zA-Z-]*\)|\((?:\?(?:P?<[^>]*>|[a-zA-Z-]*:))?|\{\d{1,4}(?:,\d{0,4})?\}|./gs;

/**
 * Counts the characters of a pattern with its repetitions expanded: compiling takes time and memory for each of them, and
 * `a{1000}` has only seven.
 */
function expandedSize(pattern: string): number {
  const outer: number[] = [];
  let [size, last] = [0, 0];
  for (const [part] of pattern.matchAll(PART)) {
    if (part.startsWith('(') && !part.endsWith(')')) {
      outer.push(size);
      [size, last] = [0, 0];
    } else if (part === ')') {
      last = size;
      size += outer.pop() ?? 0;
    } else if (part.length > 2 && part.startsWith('{')) {
      const times = Math.max(...part.slice(1, -1).split(',').map(Number));
      size += last * (times - 1);
      last *= times;
    } else {
      last = part.startsWith('\\Q') ? part.length - 2 : 1;
      size += last;
    }
  }
  return size;
}
