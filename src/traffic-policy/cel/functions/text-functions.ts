import { type CelFunc, CelScalar, celFunc, celMethod, listType } from '@bufbuild/cel';
import { compileCost, regularExpression } from '../../regular-expression.ts';
import { checkListSize, checkTextLength } from '../budget.ts';
import { currentContext } from '../evaluation.ts';

const { BOOL, INT, STRING } = CelScalar;
const TEXTS = listType(STRING);

/** Functions on strings that the library lacks or implements differently. */
export const TEXT_FUNCTIONS: readonly CelFunc[] = [
  // The library's version takes quadratic time.
  celMethod('replace', STRING, [STRING, STRING], STRING, function (from, to) {
    return replace(this, from, to, Number.POSITIVE_INFINITY);
  }),
  celMethod('replace', STRING, [STRING, STRING, INT], STRING, function (from, to, times) {
    return replace(this, from, to, times < 0n ? Number.POSITIVE_INFINITY : Number(times));
  }),
  celMethod('split', STRING, [], TEXTS, function () {
    return parts(this.split(/\s+/).filter((part) => part !== ''));
  }),
  celMethod('split', STRING, [STRING], TEXTS, function (separator) {
    return parts(this.split(separator));
  }),
  // ngrok drops the parts beyond the limit; Go keeps them in the last part.
  celMethod('split', STRING, [STRING, INT], TEXTS, function (separator, number) {
    return parts(number < 0n ? this.split(separator) : this.split(separator, Number(number)));
  }),
  celMethod('lower', STRING, [], STRING, function () {
    return this.toLowerCase();
  }),
  celMethod('upper', STRING, [], STRING, function () {
    return this.toUpperCase();
  }),
  celMethod('reverse', STRING, [], STRING, function () {
    return [...this].reverse().join('');
  }),
  // The library's version makes a list of all characters.
  celFunc('size', [STRING], INT, codePoints),
  celMethod('size', STRING, [], INT, function () {
    return codePoints(this);
  }),
  celFunc('matches', [STRING, STRING], BOOL, matches),
  celMethod('matches', STRING, [STRING], BOOL, function (pattern) {
    return matches(this, pattern);
  }),
];

function codePoints(text: string): bigint {
  let number = 0n;
  for (const _ of text) number++;
  return number;
}

function matches(text: string, pattern: string): boolean {
  const { budget } = currentContext();
  budget.spend(compileCost(pattern));
  const expression = regularExpression(pattern);
  budget.spend(expression.size * text.length);
  return expression.test(text);
}

function replace(text: string, from: string, to: string, times: number): string {
  if (from === '') throw new Error('an empty string cannot be replaced');
  const pieces = text.split(from);
  const whole = Math.min(times, pieces.length - 1);
  checkTextLength(text.length + whole * (to.length - from.length));
  const rest = pieces.slice(whole + 1);
  const replaced = pieces.slice(0, whole + 1).join(to);
  return rest.length === 0 ? replaced : `${replaced}${from}${rest.join(from)}`;
}

function parts(list: string[]): string[] {
  checkListSize(list.length);
  return list;
}
