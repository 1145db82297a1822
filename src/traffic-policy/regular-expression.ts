import { RE2JS } from 're2js';
import { messageOf } from '../lib/errors.ts';
import { refusal } from './policy-refused.ts';

/** A search costs its text's length times this size in the worst case; the largest documented pattern has 60. */
const MAX_PROGRAM = 1000;
const MAX_PATTERN = 1024;
const CACHED = 500;

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
   * @param all whether every match is replaced, or the first alone
   */
  replace(text: string, replacement: string, all: boolean): string {
    const matcher = this.#compiled.matcher(text);
    let result = '';
    let end = 0;
    while (matcher.find()) {
      result += text.slice(end, matcher.start()) + expand(replacement, (group) => groupOf(matcher, group));
      end = matcher.end();
      if (!all) break;
    }
    return result + text.slice(end);
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

const cache = new Map<string, RegularExpression>();

/**
 * Compiles a pattern, or takes it from the cache: compiling is forty times dearer than searching.
 *
 * @throws Error naming what is wrong with the pattern
 */
export function regularExpression(pattern: string): RegularExpression {
  const known = cache.get(pattern);
  if (known) {
    // Kept in the order of use, so that the least recently used is the first.
    cache.delete(pattern);
    cache.set(pattern, known);
    return known;
  }
  const compiled = compile(pattern);
  if (cache.size >= CACHED) cache.delete(cache.keys().next().value ?? '');
  cache.set(pattern, compiled);
  return compiled;
}

function compile(pattern: string): RegularExpression {
  if (pattern.length > MAX_PATTERN) throw new Error(`the regular expression is longer than ${MAX_PATTERN} characters`);
  const compiled = new RegularExpression(RE2JS.compile(pattern));
  if (compiled.size > MAX_PROGRAM) throw new Error('the regular expression is too large; repeat less');
  return compiled;
}

/** @throws {PolicyRefused} for a pattern that stands in a policy and is not RE2 */
export function checkedPattern(pattern: string, field: string): RegularExpression {
  try {
    return regularExpression(pattern);
  } catch (error) {
    throw refusal('ERR_NGROK_2261', messageOf(error), field);
  }
}
