import {
  type CelFunc,
  type CelList,
  CelScalar,
  celFunc,
  celMethod,
  isCelError,
  isCelList,
  listType,
} from '@bufbuild/cel';
import { strings } from '@bufbuild/cel/ext';
import { compileCost, regularExpression } from '../../regular-expression.ts';
import { boundedText, checkListSize, checkTextLength } from '../budget.ts';
import { currentContext } from '../evaluation.ts';

const { BOOL, BYTES, INT, STRING } = CelScalar;
const TEXTS = listType(STRING);

/** Functions that the library lacks or implements differently. */
const OWN: readonly CelFunc[] = [
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
  // Like the library's versions, but charged to the budget.
  celFunc('size', [STRING], INT, codePoints),
  celMethod('size', STRING, [], INT, function () {
    return codePoints(this);
  }),
  celFunc('bytes', [STRING], BYTES, (text) => new Uint8Array(Buffer.from(text))),
];

/** All functions on strings, with limits. */
export const TEXT_FUNCTIONS: readonly CelFunc[] = [
  ...[...strings, ...OWN].map(metered),
  celFunc('matches', [STRING, STRING], BOOL, matches),
  celMethod('matches', STRING, [STRING], BOOL, function (pattern) {
    return matches(this, pattern);
  }),
  celFunc('_+_', [STRING, STRING], STRING, (left, right) => boundedText(left + right)),
];

function codePoints(text: string): bigint {
  let number = 0n;
  for (const _ of text) number++;
  return number;
}

function matches(text: string, pattern: string): boolean {
  const { budget } = currentContext();
  budget.spend(pattern.length + compileCost(pattern));
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

/** Wraps a function: charges for the length of its arguments and limits the length of its result. */
function metered(func: CelFunc): CelFunc {
  const run = (target: string | CelList | undefined, args: (string | bigint | CelList)[]) => {
    currentContext().budget.spend(sizeOf(target) + args.reduce((sum: number, arg) => sum + sizeOf(arg), 0));
    const result = func.call(0, target, args);
    if (result === undefined) throw new Error(`found no matching overload for '${func.name}'`);
    if (isCelError(result)) throw result;
    return typeof result === 'string' ? boundedText(result) : result;
  };
  return func.target === undefined
    ? celFunc(func.name, func.arguments, CelScalar.DYN, (...args) => run(undefined, args))
    : celMethod(func.name, func.target, func.arguments, CelScalar.DYN, function (...args) {
        return run(this as string | CelList, args);
      });
}

function sizeOf(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (!isCelList(value)) return 1;
  let size = 0;
  for (const element of value) size += typeof element === 'string' ? element.length : 1;
  return size;
}
