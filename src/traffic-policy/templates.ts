import type { CelValue } from '@bufbuild/cel';
import { messageOf } from '../lib/errors.ts';
import { boundedText } from './cel/budget.ts';
import type { Expression } from './cel/expression.ts';
import { endOfString } from './cel/syntax.ts';
import { textOf } from './cel/values.ts';
import { bytesOfText, keptText } from './kept-values.ts';
import { PolicyFailure, PolicyRefused, refusal } from './policy-errors.ts';
import type { PolicyScope } from './policy-subjects.ts';

export class Template {
  readonly #parts: readonly (string | Expression)[];
  /** The string when it has no expression; null otherwise. */
  readonly constant: string | null;

  constructor(parts: readonly (string | Expression)[]) {
    this.#parts = parts;
    this.constant = parts.every((part) => typeof part === 'string') ? parts.join('') : null;
  }

  /** @throws {PolicyFailure} when an expression has no value, or one that cannot be converted to a string */
  text(scope: PolicyScope): string {
    if (this.constant !== null) return this.constant;
    return orFail(() => {
      const texts = this.#parts.map((part) => (typeof part === 'string' ? part : textOf(part.evaluate(scope))));
      // Joining several makes a text with memory of its own.
      const text = boundedText(texts.length === 1 ? keptText(texts[0] ?? '') : texts.join(''));
      scope.budget.spend(text.length);
      scope.hold(bytesOfText(text), 'phase');
      return text;
    });
  }

  /** The value of the expression when the string consists of one; the resulting string otherwise. */
  value(scope: PolicyScope): CelValue {
    const [only] = this.#parts;
    if (this.#parts.length !== 1 || only === undefined || typeof only === 'string') return this.text(scope);
    return orFail(() => only.evaluate(scope));
  }

  /** The literal strings and expressions, in order. */
  get parts(): readonly (string | Expression)[] {
    return this.#parts;
  }
}

function orFail<T>(evaluate: () => T): T {
  try {
    return evaluate();
  } catch (error) {
    if (error instanceof PolicyFailure) throw error;
    throw new PolicyFailure('ERR_NGROK_3900', `\${…} has no value: ${messageOf(error)}`, { cause: error });
  }
}

/** @throws {PolicyRefused} when an expression is invalid or a `${` is never closed */
export function parseTemplate(text: string, compile: (expression: string) => Expression): Template {
  return new Template(
    templateParts(text).map((part) =>
      typeof part === 'string' ? part : compiled(unescaped(part.expression), compile),
    ),
  );
}

/** The literal texts and the expressions in a template, in order. @throws {PolicyRefused} when a `${` is never closed */
export function templateParts(text: string): (string | { expression: string })[] {
  const parts: (string | { expression: string })[] = [];
  let at = 0;
  for (;;) {
    const start = text.indexOf('${', at);
    if (start === -1) break;
    if (start > at) parts.push(text.slice(at, start));
    const end = endOfExpression(text, start + 2);
    if (end === -1) throw refusal('ERR_NGROK_2224', 'a ${ is never closed');
    parts.push({ expression: text.slice(start + 2, end) });
    at = end + 1;
  }
  if (at < text.length) parts.push(text.slice(at));
  return parts;
}

function compiled(expression: string, compile: (expression: string) => Expression): Expression {
  try {
    return compile(expression);
  } catch (error) {
    if (!(error instanceof PolicyRefused)) throw error;
    throw refusal('ERR_NGROK_2224', `\${${expression}}: ${error.message}`);
  }
}

const ESCAPED_QUOTE = '\\"';

/** @returns the last character of a string literal whose quotes are escaped */
function endOfEscaped(text: string, at: number): number {
  const end = text.indexOf(ESCAPED_QUOTE, at + ESCAPED_QUOTE.length);
  return end === -1 ? text.length : end + 1;
}

/**
 * An example of ngrok's documentation escapes the quotes of an expression in a text that needs none: `${m[\"key\"]}`. Outside of
 * string literals, CEL has no backslash.
 */
function unescaped(expression: string): string {
  for (let at = 0; at < expression.length; at++) {
    if (expression.startsWith(ESCAPED_QUOTE, at)) return expression.replaceAll(ESCAPED_QUOTE, '"');
    if (expression[at] === '"' || expression[at] === "'") at = endOfString(expression, at) - 1;
  }
  return expression;
}

/** Finds the closing brace of an expression: braces nest, and do not count in string literals. */
function endOfExpression(text: string, from: number): number {
  let depth = 0;
  for (let at = from; at < text.length; at++) {
    const character = text[at];
    if (text.startsWith(ESCAPED_QUOTE, at)) at = endOfEscaped(text, at);
    else if (character === '"' || character === "'") at = endOfString(text, at) - 1;
    else if (character === '{') depth++;
    else if (character === '}' && depth-- === 0) return at;
  }
  return -1;
}
