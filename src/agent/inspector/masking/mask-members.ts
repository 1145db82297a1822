import { replaceStepwise } from '../../../lib/masking/replace-stepwise.ts';
import { isEmptyValue, isSecretMember, MASK } from '../../../lib/masking/secret-names.ts';
import type { Stepwise } from '../../../lib/stepwise.ts';

/** Names in one step, which take less than a millisecond. */
const AT_ONCE = 200;
/** Characters of the shortest string that contains a name and a value, with its quotes. */
const MIN_CONTENT = 10;

/**
 * Masks members of JSON, also behind what is none, as in frames of Socket.IO. Changes nothing but the values, so that numbers,
 * spaces and the order stay as they were sent.
 *
 * @param maskWithin masks what a string contains
 */
export function* maskMembers(text: string, maskWithin: (inner: string) => Stepwise<string>): Stepwise<string> {
  let [masked, copied, count] = ['', 0, 0];
  for (let at = text.indexOf('"'); at !== -1; at = text.indexOf('"', at)) {
    if (++count % AT_ONCE === 0) yield;
    const end = endOfString(text, at);
    const value = startOfValue(text, end);
    const name = value === null ? '' : stringIn(text.slice(at, end));
    if (value !== null && isSecretMember(name)) {
      const after = yield* endOfValue(text, value);
      const sent = text.slice(value, after);
      const isEmpty = sent === '' || sent === '""' || isEmptyValue(name, sent);
      masked += text.slice(copied, value) + (isEmpty ? sent : `"${MASK}"`);
      copied = at = after;
      continue;
    }
    if (value === null && end - at >= MIN_CONTENT) {
      const sent = yield* contentIn(text.slice(at, end));
      const shown = yield* maskWithin(sent);
      if (shown !== sent) {
        const isCut = !text.endsWith('"', end);
        masked += text.slice(copied, at) + JSON.stringify(shown).slice(0, isCut ? -1 : undefined);
        copied = at = end;
        continue;
      }
    }
    // In other text, quotes need not come in pairs: what ends one string may begin the next.
    at = end === text.length ? end : end - 1;
  }
  return yield* maskNamedValues(masked + text.slice(copied));
}

const NAMES = String.raw`"(?:name|key|k|field|header|param|parameter|property|label|variable)"\s{0,50}:\s{0,50}`;
const VALUES = String.raw`"(?:value|val|v|content)"\s{0,50}:\s{0,50}`;
const STRING = String.raw`"((?:[^"\\]|\\.){0,100})"`;
/** A member that says what another one of the same object is about, and that one. */
const NAME_FIRST = new RegExp(`${NAMES}${STRING}[^{}]{0,300}?${VALUES}`, 'gi');
const VALUE_FIRST = new RegExp(String.raw`${VALUES}(?=["\d])`, 'gi');
const THEN_NAME = new RegExp(`[^{}]{0,300}?${NAMES}${STRING}`, 'iy');

/** Masks `{"name": "password", "value": …}`, in any order. */
function* maskNamedValues(text: string): Stepwise<string> {
  let [masked, copied, count] = ['', 0, 0];
  const places: number[] = [];
  for (const { 0: whole, 1: name = '', index } of text.matchAll(NAME_FIRST)) {
    if (++count % AT_ONCE === 0) yield;
    if (isSecretMember(name)) places.push(index + whole.length);
  }
  for (const { 0: whole, index } of text.matchAll(VALUE_FIRST)) {
    if (++count % AT_ONCE === 0) yield;
    THEN_NAME.lastIndex = yield* endOfValue(text, index + whole.length);
    const name = THEN_NAME.exec(text)?.[1];
    if (name !== undefined && isSecretMember(name)) places.push(index + whole.length);
  }
  for (const place of places.sort((one, other) => one - other)) {
    if (place < copied) continue;
    const after = yield* endOfValue(text, place);
    if (after === place || isEmptyValue('', stringIn(text.slice(place, after)))) continue;
    masked += `${text.slice(copied, place)}"${MASK}"`;
    copied = after;
  }
  return masked + text.slice(copied);
}

function endOfString(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at++) {
    if (text[at] === '\\') at++;
    else if (text[at] === '"') return at + 1;
  }
  return text.length;
}

/** Where the value of a member begins whose name ends at `end`; null when that was no name. */
function startOfValue(text: string, end: number): number | null {
  const colon = skipSpace(text, end);
  return text[colon] === ':' ? skipSpace(text, colon + 1) : null;
}

function skipSpace(text: string, start: number): number {
  let at = start;
  while (at < text.length && ' \t\r\n'.includes(text.charAt(at))) at++;
  return at;
}

function* endOfValue(text: string, start: number): Stepwise<number> {
  const first = text[start];
  if (first === '"') return endOfString(text, start);
  if (first === '{' || first === '[') return yield* endOfNested(text, start);
  let at = start;
  while (at < text.length && !',}] \t\r\n'.includes(text.charAt(at))) at++;
  return at;
}

function* endOfNested(text: string, start: number): Stepwise<number> {
  let [depth, count] = [0, 0];
  for (let at = start; at < text.length; ) {
    if (++count % (50 * AT_ONCE) === 0) yield;
    const each = text.charAt(at);
    if (each === '"') {
      at = endOfString(text, at);
      continue;
    }
    at++;
    if ('[{'.includes(each)) depth++;
    else if (']}'.includes(each) && --depth === 0) return at;
  }
  return text.length;
}

/** The text of a name or a short value. */
function stringIn(token: string): string {
  try {
    return String(JSON.parse(token));
  } catch {
    return token.slice(1, -1);
  }
}

/** The text of a string, which may be cut, or no JSON at all. */
function* contentIn(token: string): Stepwise<string> {
  try {
    return String(JSON.parse(token));
  } catch {
    const inner = token.slice(1, token.length > 1 && token.endsWith('"') ? -1 : undefined);
    return yield* replaceStepwise(inner, /\\(["\\/])/g, ([, character = '']) => character);
  }
}
