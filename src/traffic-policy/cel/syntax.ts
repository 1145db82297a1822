import { parse } from '@bufbuild/cel';
import { messageOf } from '../../lib/errors.ts';
import { refusal } from '../policy-errors.ts';

export type Expr = NonNullable<ReturnType<typeof parse>['expr']>;
export type CallExpr = Extract<Expr['exprKind'], { case: 'callExpr' }>['value'];
export type ComprehensionExpr = Extract<Expr['exprKind'], { case: 'comprehensionExpr' }>['value'];

const MAX_LENGTH = 4096;

/** The library takes up to 20 ms for as many. A list of the texts that fit in one expression has fewer. */
const MAX_PARTS = 1_000;

/** The parser takes cubic time for nested brackets that never close. The deepest documented expression has 6. */
const MAX_NESTING = 32;

/** @throws {PolicyRefused} when it is not CEL, or too long or too deep to parse in reasonable time */
export function parseExpression(text: string): Expr {
  if (text.length > MAX_LENGTH) {
    throw refusal('ERR_NGROK_2221', `the expression is longer than ${MAX_LENGTH} characters`);
  }
  const { parts, nesting } = outline(text);
  if (parts > MAX_PARTS) throw refusal('ERR_NGROK_2200', `the expression has more than ${MAX_PARTS} parts`);
  if (nesting > MAX_NESTING) {
    throw refusal('ERR_NGROK_2200', `the expression has more than ${MAX_NESTING} nested brackets`);
  }
  try {
    // The parser accepts a comment only when a line follows it.
    return parse(`${text}\n`).expr;
  } catch (error) {
    throw refusal('ERR_NGROK_2200', `the expression is not CEL: ${messageOf(error)}`);
  }
}

const BLANKS = /\s*/y;
const WORD_OR_OPERATOR = /\w+|[=!<>]=|&&|\|\|/y;

/** Counts the words, literals, operators and brackets of an expression, and how deep its brackets are. */
export function outline(text: string): { parts: number; nesting: number } {
  let [parts, depth, nesting] = [0, 0, 0];
  for (let at = after(BLANKS, text, 0); at < text.length; at = after(BLANKS, text, at)) {
    const character = text.charAt(at);
    if (text.startsWith('//', at)) {
      at = endOfLine(text, at);
      continue;
    }
    parts++;
    if ('([{'.includes(character)) nesting = Math.max(nesting, ++depth);
    else if (')]}'.includes(character)) depth--;
    at =
      character === '"' || character === "'"
        ? endOfString(text, at)
        : Math.max(at + 1, after(WORD_OR_OPERATOR, text, at));
  }
  return { parts, nesting };
}

function after(token: RegExp, text: string, at: number): number {
  token.lastIndex = at;
  token.test(text);
  return Math.max(at, token.lastIndex);
}

function endOfLine(text: string, at: number): number {
  const end = text.indexOf('\n', at);
  return end === -1 ? text.length : end;
}

/**
 * @param at the position of the opening quote
 * @returns the position after the closing quote, or the end of the line or text without one
 */
export function endOfString(text: string, at: number): number {
  const mark = text.charAt(at);
  const quote = text.startsWith(mark.repeat(3), at) ? mark.repeat(3) : mark;
  // In r'…' a backslash has no special meaning.
  const raw = /(?:^|[^A-Za-z0-9_])[bB]?[rR][bB]?$/.test(text.slice(Math.max(0, at - 4), at));
  for (let end = at + quote.length; end < text.length; end++) {
    if (text[end] === '\\' && !raw) end++;
    else if (text.startsWith(quote, end)) return end + quote.length;
    else if (text[end] === '\n' && quote.length === 1) return end;
  }
  return text.length;
}

/** The dotted name that a tree stands for, like `req.url.path`; null for any other tree. */
export function qualifiedName(expr: Expr | undefined): string | null {
  const kind = expr?.exprKind;
  if (kind?.case === 'identExpr') return kind.value.name.replace(/^\./, '');
  if (kind?.case !== 'selectExpr' || kind.value.testOnly) return null;
  const parent = qualifiedName(kind.value.operand);
  return parent === null ? null : `${parent}.${kind.value.field}`;
}

export function callOf(name: string, args: readonly Expr[]): Expr {
  const call = parse(`f(${args.map(() => '0').join(',')})`).expr;
  if (call.exprKind.case !== 'callExpr') throw new Error('a call was expected');
  call.exprKind.value.function = name;
  call.exprKind.value.args.splice(0, args.length, ...args);
  return call;
}

export function becomeCall(expr: Expr, name: string, args: readonly Expr[]): void {
  expr.exprKind = callOf(name, args).exprKind;
}

export function textLiteral(text: string): Expr {
  return parse(JSON.stringify(text)).expr;
}

/** Translates `list.sortBy(x, key)` in place; returns whether the call was that macro. */
export function expandSortBy(call: CallExpr): boolean {
  const { target, args } = call;
  const variable = args[0]?.exprKind;
  const key = args[1];
  if (call.function !== 'sortBy' || target === undefined || args.length !== 2 || key === undefined) return false;
  if (variable?.case !== 'identExpr') return false;
  call.function = '@sortBy';
  delete call.target;
  call.args = [target, mapOf(target, variable.value.name, key)];
  return true;
}

function mapOf(list: Expr, name: string, element: Expr): Expr {
  const map = parse(`[].map(${name}, element)`).expr;
  if (map.exprKind.case !== 'comprehensionExpr') throw new Error('a comprehension was expected');
  const loop = map.exprKind.value;
  loop.iterRange = list;
  const step = loop.loopStep?.exprKind;
  const appended = step?.case === 'callExpr' ? step.value.args[1]?.exprKind : undefined;
  if (appended?.case !== 'listExpr') throw new Error('map was expected to append a list');
  appended.value.elements[0] = element;
  return map;
}

/** Charges the budget, in its units, for the elements of the range and for every iteration, so that loops end with it. */
export function limitLoop(loop: ComprehensionExpr, cost: number): void {
  const { iterRange, loopCondition } = loop;
  if (loopCondition === undefined || iterRange === undefined) throw new Error('a loop was expected');
  const tick = callOf('@tick', [parse(String(cost)).expr]);
  loop.loopCondition = callOf('_&&_', [tick, loopCondition]);
  loop.iterRange = callOf('@range', [iterRange]);
}
