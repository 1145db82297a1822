import { UNPRINTABLE } from './terminal-text.ts';

/** Raised for text that is not JSON or is nested too deeply. */
export class JsonTextError extends Error {
  /** `place` is for people: `line 3, column 14`. */
  constructor(
    readonly place: string,
    readonly problem: string,
  ) {
    super(`${place}: ${problem}`);
    this.name = new.target.name;
  }
}

/** Deeper nesting can overflow the stack of recursive functions, including JSON.stringify(). */
const MAX_DEPTH = 64;

const SPACE = 0x20;
const BLANKS = /[ \t\r\n]*/y;
/** Only quotes, backslashes and control characters need escapes. */
const STRING = /"[ !#-[\]-\uffff]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[ !#-[\]-\uffff]*)*"/y;
const SCALAR = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;

type Expected = 'a value' | 'a value or ]' | 'a name in double quotes or }' | 'a name in double quotes' | ':' | Next;
type Next = ', or }' | ', or ]' | 'end of input';

/**
 * JSON.parse() whose errors always contain the position, which V8's messages often do not.
 *
 * @throws {JsonTextError}
 */
export function parseJson(text: string): unknown {
  // With fewer brackets, nothing is nested too deeply. JSON.parse() takes a hundred times as long for brackets as for text.
  if (text.split(/[[{]/, MAX_DEPTH + 2).length > MAX_DEPTH + 1) checkJson(text);
  try {
    return JSON.parse(text);
  } catch (error) {
    checkJson(text);
    throw error;
  }
}

/** Checks syntax and depth of a JSON text; throws a {@link JsonTextError}. */
export function checkJson(text: string): void {
  const open: ('}' | ']')[] = [];
  const next = (): Next => (open.length === 0 ? 'end of input' : open[open.length - 1] === '}' ? ', or }' : ', or ]');
  let expected: Expected = 'a value';
  for (let at = skipBlanks(text, 0); at < text.length; at = skipBlanks(text, at)) {
    const character = text.charAt(at);
    if (character === open[open.length - 1] && expected.endsWith(character)) {
      open.pop();
      expected = next();
      at++;
    } else if (expected === 'a value' || expected === 'a value or ]') {
      if (character === '{' || character === '[') {
        open.push(character === '{' ? '}' : ']');
        if (open.length > MAX_DEPTH) throw errorAt(text, at, `nested deeper than ${MAX_DEPTH} levels`);
        expected = character === '{' ? 'a name in double quotes or }' : 'a value or ]';
        at++;
      } else {
        at = take(character === '"' ? STRING : SCALAR, text, at, expected);
        expected = next();
      }
    } else if (expected === 'a name in double quotes' || expected === 'a name in double quotes or }') {
      at = take(STRING, text, at, expected);
      expected = ':';
    } else if (character === expected[0] && expected !== 'end of input') {
      expected = expected === ', or }' ? 'a name in double quotes' : 'a value';
      at++;
    } else {
      throw errorAt(text, at, `expected ${expected}`);
    }
  }
  if (expected !== 'end of input') throw errorAt(text, text.length, `unexpected end; expected ${expected}`);
}

function take(token: RegExp, text: string, at: number, expected: Expected): number {
  const end = skip(token, text, at);
  if (end === at) throw errorAt(text, at, `expected ${text[at] === '"' ? 'a valid string' : expected}`);
  return end;
}

function skipBlanks(text: string, at: number): number {
  return text.charCodeAt(at) > SPACE ? at : skip(BLANKS, text, at);
}

function skip(token: RegExp, text: string, at: number): number {
  token.lastIndex = at;
  return token.test(text) ? token.lastIndex : at;
}

function errorAt(text: string, at: number, problem: string): JsonTextError {
  const lines = text.slice(0, at).split('\n');
  return new JsonTextError(`line ${lines.length}, column ${(lines.at(-1) ?? '').length + 1}`, problem);
}

/** The same JSON without a character that a terminal would carry out or not show. */
export function printableJson(json: string): string {
  return json.replace(UNPRINTABLE, (each) => (each === '\n' ? each : each.split('').map(unicodeEscape).join('')));
}

const unicodeEscape = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
