import { parse } from '@bufbuild/cel';
import { messageOf } from '../../lib/errors.ts';
import { refusal } from '../policy-refused.ts';

export type Expr = NonNullable<ReturnType<typeof parse>['expr']>;
export type CallExpr = Extract<Expr['exprKind'], { case: 'callExpr' }>['value'];
export type ComprehensionExpr = Extract<Expr['exprKind'], { case: 'comprehensionExpr' }>['value'];

const MAX_LENGTH = 4096;

/** The parser is cubic in brackets that nest and never close; the deepest documented expression has 6. */
const MAX_NESTING = 32;

/**
 * @returns the expression's tree
 * @throws {PolicyRefused} for what is not CEL, or is too long or too deep to be read in reasonable time
 */
export function parseExpression(text: string): Expr {
  if (text.length > MAX_LENGTH) {
    throw refusal('ERR_NGROK_2221', `the expression is longer than ${MAX_LENGTH} characters`);
  }
  if (nesting(text) > MAX_NESTING) {
    throw refusal('ERR_NGROK_2200', `the expression nests more than ${MAX_NESTING} brackets`);
  }
  try {
    // The parser knows comments only when something follows them.
    return parse(`${text}\n`).expr;
  } catch (error) {
    throw refusal('ERR_NGROK_2200', `the expression is not CEL: ${messageOf(error)}`);
  }
}

function nesting(text: string): number {
  let depth = 0;
  let deepest = 0;
  for (let at = 0; at < text.length; at++) {
    const character = text[at] as string;
    if (character === '"' || character === "'") at = endOfString(text, at) - 1;
    else if (text.startsWith('//', at)) at = endOfLine(text, at);
    else if ('([{'.includes(character)) deepest = Math.max(deepest, ++depth);
    else if (')]}'.includes(character)) depth--;
  }
  return deepest;
}

function endOfLine(text: string, at: number): number {
  const end = text.indexOf('\n', at);
  return end === -1 ? text.length : end;
}

/**
 * @param at where the string literal's opening quote stands
 * @returns where the literal ends: after its closing quote, or where the line or the text does without one
 */
export function endOfString(text: string, at: number): number {
  const mark = text[at] as string;
  const quote = text.startsWith(mark.repeat(3), at) ? mark.repeat(3) : mark;
  // In r'…' a backslash is a character like any other.
  const raw = /(?:^|[^A-Za-z0-9_])[bB]?[rR][bB]?$/.test(text.slice(Math.max(0, at - 4), at));
  for (let end = at + quote.length; end < text.length; end++) {
    if (text[end] === '\\' && !raw) end++;
    else if (text.startsWith(quote, end)) return end + quote.length;
    else if (text[end] === '\n' && quote.length === 1) return end;
  }
  return text.length;
}

/** The dotted name that a tree spells, such as `req.url.path`; null when it is anything else. */
export function qualifiedName(expr: Expr | undefined): string | null {
  const kind = expr?.exprKind;
  if (kind?.case === 'identExpr') return kind.value.name.replace(/^\./, '');
  if (kind?.case !== 'selectExpr' || kind.value.testOnly) return null;
  const parent = qualifiedName(kind.value.operand);
  return parent === null ? null : `${parent}.${kind.value.field}`;
}

/** Makes a node into a call of a function, in place. */
export function becomeCall(expr: Expr, name: string, args: readonly Expr[]): void {
  const call = parse(`f(${args.map(() => '0').join(',')})`).expr;
  if (call.exprKind.case !== 'callExpr') throw new Error('a call was expected');
  call.exprKind.value.function = name;
  call.exprKind.value.args.splice(0, args.length, ...args);
  expr.exprKind = call.exprKind;
}

/** A node for a text. */
export function textLiteral(text: string): Expr {
  return parse(JSON.stringify(text)).expr;
}
