import { replaceStepwise } from '../../../lib/masking/replace-stepwise.ts';
import { isEmptyValue, isSecretMember, MASK } from '../../../lib/masking/secret-names.ts';
import type { Stepwise } from '../../../lib/stepwise.ts';

/** `code`: HTML, scripts and style sheets, where only quotes enclose values. */
export type TextKind = 'json' | 'code' | 'text';

/** Names in one step, which take less than a millisecond. */
const AT_ONCE = 200;

/** Masks what has a name otherwise than members of JSON: XML, YAML, settings, arguments of GraphQL, attributes, lines of a log. */
export function* maskPairs(text: string, kind: TextKind): Stepwise<string> {
  const tagged = text.includes('<') ? yield* maskTags(text, kind) : text;
  return yield* maskNamed(tagged, kind);
}

/** A name, and what comes between it and its value. */
const NAME = /(?<![\w.-])(["'`]?)([A-Za-z_][\w.-]{0,99})\1[ \t]{0,20}(=>|[:=])[ \t]{0,20}/g;
const WORD = /[^\s&;,"'`<>(){}[\]]+/y;
const LINE = /[^\r\n\0]+/y;
/** What a line may begin with before a name. */
const INDENT = /(?:^|[\r\n\0])[ \t-]{0,100}$/;

function* maskNamed(text: string, kind: TextKind): Stepwise<string> {
  let [masked, copied, count] = ['', 0, 0];
  for (const { 0: whole, 1: quote = '', 2: name = '', 3: between = '', index } of text.matchAll(NAME)) {
    if (++count % AT_ONCE === 0) yield;
    const start = index + whole.length;
    if (start < copied || !isSecretMember(name)) continue;
    const first = text.charAt(start);
    let [from, to] = [start, start];
    if (first !== '' && '"\'`'.includes(first)) [from, to] = [start + 1, endOfQuoted(text, start, first)];
    else if (kind !== 'code') to = endOfBare(text, start, between, quote === '' && beginsLine(text, index));
    const value = text.slice(from, to);
    if (value.trim() === '' || isEmptyValue(name, value)) continue;
    masked += text.slice(copied, from) + MASK;
    copied = to;
  }
  return masked + text.slice(copied);
}

function endOfQuoted(text: string, start: number, quote: string): number {
  for (let at = start + 1; at < text.length; at++) {
    const each = text[at];
    if (each === '\\') at++;
    else if (each === quote) return at;
  }
  return text.length;
}

function beginsLine(text: string, index: number): boolean {
  return INDENT.test(text.slice(Math.max(0, index - 101), index));
}

/** Without quotes, a colon is a part of many sentences: what follows it in one must look like a secret. */
function endOfBare(text: string, start: number, between: string, isLine: boolean): number {
  const pattern = between === ':' && isLine ? LINE : WORD;
  pattern.lastIndex = start;
  const [value = ''] = pattern.exec(text) ?? [];
  // A bracket: what is inside has names of its own. An operator: no value.
  if (/^[=[{|>&(]/.test(value)) return start;
  const isLikely = between !== ':' || isLine || /\d/.test(value) || value.length >= 20;
  return isLikely ? start + value.length : start;
}

const TAG = /<([A-Za-z_][\w.-]{0,99}:)?([A-Za-z_][\w.-]{0,99})((?:[\s/][^<>]{0,8000})?)>/g;
/** An attribute that says what another one is about. */
const ABOUT = /\s(?:name|key|id|field|type|property)\s{0,9}=\s{0,9}["']([^"'<>]{1,100})["']/gi;
const VALUE = /(\s(?:value|content)\s{0,9}=\s{0,9})("[^"]*"|'[^']*'|[^\s"'>]+)/gi;

/** Masks elements with the name of a secret, and values of tags with one as another attribute. */
function* maskTags(text: string, kind: TextKind): Stepwise<string> {
  let [masked, copied, count] = ['', 0, 0];
  for (const { 0: tag, 1: prefix = '', 2: name = '', 3: attributes = '', index } of text.matchAll(TAG)) {
    if (++count % AT_ONCE === 0) yield;
    if (index < copied) continue;
    const isNamed = [...attributes.matchAll(ABOUT)].some(([, value = '']) => isSecretMember(value));
    if (isNamed) {
      const shown = yield* replaceStepwise(tag, VALUE, ([, before, value]) =>
        value === '""' || value === "''" ? null : `${before}"${MASK}"`,
      );
      masked += text.slice(copied, index) + shown;
      copied = index + tag.length;
    }
    if (kind === 'code' || attributes.endsWith('/') || (!isNamed && !isSecretMember(name))) continue;
    const start = index + tag.length;
    const end = endOf(text, start, isSecretMember(name) ? `</${prefix}${name}` : '<');
    if (text.slice(start, end).trim() === '') continue;
    masked += text.slice(copied, start) + MASK;
    copied = end;
  }
  return masked + text.slice(copied);
}

function endOf(text: string, start: number, closing: string): number {
  const end = text.indexOf(closing, start);
  return end === -1 ? text.length : end;
}
