import { isUtf8 } from 'node:buffer';
import { maskUrlStepwise } from '../../../lib/masking/mask-url.ts';
import { isSecretMember, isSecretParameter, MASK } from '../../../lib/masking/secret-names.ts';
import { runAtOnce, type Stepwise } from '../../../lib/stepwise.ts';
import { maskMembers } from './mask-members.ts';
import { maskPairs, type TextKind } from './mask-pairs.ts';

/** Names or lines in one step, which take less than a millisecond. */
const AT_ONCE = 200;

/** JSON in JSON, and what is encoded otherwise in strings, is looked into so many times. */
const MAX_NESTING = 4;

/** Masks the text of a message like {@link maskTextStepwise}. */
export function maskText(text: string, contentType: string | null): string {
  return runAtOnce(maskTextStepwise(text, contentType));
}

/**
 * Masks values of password-like names in the text of a body or a message: in forms, in server-sent events, in XML, in pairs such
 * as `name: value`, and in what looks like members of JSON, wherever it begins; also in strings that contain one of these. Masks
 * what is a secret by its form, and passwords and tokens in URLs, in any text. Cut text is masked as well. Takes time in
 * proportion to the text.
 *
 * @param contentType as in the header; null: decided by the text
 */
export function* maskTextStepwise(text: string, contentType: string | null): Stepwise<string> {
  const type = contentType?.toLowerCase() ?? '';
  if (type.startsWith('application/x-www-form-urlencoded')) return yield* maskForm(text);
  if (type.startsWith('multipart/')) return yield* maskMultipart(text, contentType ?? '', maskPart);
  if (type.startsWith('text/event-stream')) return yield* maskEvents(text);
  return yield* maskOther(text, kindOf(type));
}

/** Control characters, but for those of lines and terminals, and those that end messages of STOMP and Socket.IO. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const BINARY = /[\x01-\x08\x0e-\x1a\x1c\x1d\x7f]|\0./s;

/** Whether a text that is valid UTF-8 is a binary message nevertheless. */
export function hasBinary(text: string): boolean {
  return BINARY.test(text);
}

/** A binary message with fewer bytes has no secret: a PIN takes four, the number and the length of its field two. */
export const MIN_BINARY = 6;

/** Masks a message whose bytes may be a text. @returns what may be shown of them */
export function maskBytes(bytes: Buffer): Buffer {
  if (bytes.length < MIN_BINARY) return bytes;
  const text = isUtf8(bytes) ? bytes.toString('utf8') : null;
  return Buffer.from(text === null || hasBinary(text) ? MASK : maskText(text, null));
}

/** Masks the target of a request: its parameters, also in the values of others, such as a URL to return to. */
export function maskTarget(target: string): string {
  return runAtOnce(maskParameters(target, 0));
}

/** Masks a header whose name is no secret's: its value may be a URL, JSON, or anything else. */
export function maskHeaderValue(value: string): string {
  return runAtOnce(maskWithin(maskTarget(value), 0));
}

function kindOf(type: string): TextKind {
  if (/[/+]json\b/.test(type)) return 'json';
  return /^text\/(?:html|css)|[/+](?:xhtml|javascript|ecmascript)/.test(type) ? 'code' : 'text';
}

/** A shorter text has no name with a secret: `pin=1234` has eight characters. */
const MIN_TEXT = 8;

function* maskOther(text: string, kind: TextKind = 'text', depth = 0): Stepwise<string> {
  if (text.length < MIN_TEXT) return text;
  const parameters = yield* maskParameters(text, depth);
  const members = yield* maskMembers(parameters, (inner) => maskWithin(inner, depth + 1, kind));
  return kind === 'json' ? members : yield* maskPairs(members, kind);
}

/** What strings have that contain names and values, or are encoded. */
const HINT = /[:=<%]|^(?:ey[A-Z]|W3s|ew[o0])/;
const ENCODED = /%[0-9a-f]{2}/i;

/** Masks what a string contains: JSON in JSON, forms, other text, and each of them in base64 or with percent-encoding. */
function* maskWithin(text: string, depth: number, around: TextKind = 'text'): Stepwise<string> {
  if (text.length < MIN_TEXT || !HINT.test(text)) return text;
  if (depth > MAX_NESTING) return text.includes('"') ? MASK : text;
  const decoded = jsonInBase64(text);
  if (decoded !== null) return (yield* maskOther(decoded, 'json', depth)) === decoded ? text : MASK;
  const masked = yield* maskOther(text, around === 'code' ? 'code' : 'text', depth);
  if (masked !== text || !ENCODED.test(text)) return masked;
  const plain = decodedField(text);
  const shown = yield* maskOther(plain, 'text', depth);
  return shown === plain ? text : encodeURIComponent(shown);
}

/** One `name=value` of a query. */
const PARAMETER = /([?&;#][^=&;#?\s"'<>]{1,200}=)([^&;#\s"'<>]+)/g;
/** A value that is encoded: with `%`, or as base64 of JSON. */
const ENCODED_VALUE = /%|^(?:ey|W3s|ew)/;

function* maskParameters(text: string, depth: number): Stepwise<string> {
  const masked = yield* maskUrlStepwise(text);
  if (depth >= MAX_NESTING || !masked.includes('=')) return masked;
  let [replaced, copied, count] = ['', 0, 0];
  for (const { 0: whole, 1: before = '', 2: value = '', index } of masked.matchAll(PARAMETER)) {
    if (++count % AT_ONCE === 0) yield;
    if (!ENCODED_VALUE.test(value)) continue;
    const shown = yield* maskField(value, depth + 1);
    if (shown === value) continue;
    replaced += masked.slice(copied, index) + before + shown;
    copied = index + whole.length;
  }
  return replaced + masked.slice(copied);
}

/** How base64 of JSON begins: of `{"`, `[{"`, `{ `, `{` and the end of a line. */
const BASE64_JSON = /^(?:eyJ|W3si|eyA|ewo|ew0)[\w+/-]+={0,2}$/;

function jsonInBase64(text: string): string | null {
  return BASE64_JSON.test(text) ? Buffer.from(text, 'base64').toString() : null;
}

/** Parts that have parts themselves are masked as other text: nobody nests without an end. */
function maskPart(text: string, contentType: string | null): Stepwise<string> {
  return /^multipart\//i.test(contentType ?? '') ? maskOther(text) : maskTextStepwise(text, contentType);
}

/** The lines of an event's data are one text, which may be JSON. */
function* maskEvents(text: string): Stepwise<string> {
  let masked = '';
  let data: { prefix: string; value: string; ending: string }[] = [];
  // Where the data begins, and the line.
  let [dataAt, at, count] = [0, 0, 0];
  const maskData = function* (): Stepwise<string> {
    const [{ prefix = '', ending = '' } = {}] = data;
    const sent = data.map(({ value }) => value).join('\n');
    const shown = yield* maskOther(sent);
    if (shown === sent) return text.slice(dataAt, at);
    return prefix + shown.replaceAll('\n', `${ending}${prefix}`) + (data.at(-1)?.ending ?? '');
  };
  for (const { line, ending } of linesOf(text)) {
    if (++count % AT_ONCE === 0) yield;
    const prefix = dataPrefix(line);
    if (prefix !== null) data.push({ prefix, value: line.slice(prefix.length), ending });
    else {
      masked += (yield* maskData()) + (yield* maskOther(line)) + ending;
      data = [];
      dataAt = at + line.length + ending.length;
    }
    at += line.length + ending.length;
  }
  return masked + (yield* maskData());
}

function* linesOf(text: string): Generator<{ line: string; ending: string }> {
  let at = 0;
  for (const { 0: ending, index } of text.matchAll(/\r\n|\n|\r/g)) {
    yield { line: text.slice(at, index), ending };
    at = index + ending.length;
  }
  if (at < text.length) yield { line: text.slice(at), ending: '' };
}

function dataPrefix(line: string): string | null {
  if (line.startsWith('data: ')) return 'data: ';
  if (line.startsWith('data:')) return 'data:';
  // At the beginning of the stream.
  return /^\ufeffdata: ?/.exec(line)?.[0] ?? null;
}

/** A field of a form that has a name and `=`. */
const FIELD = /(^|&)([^&=]+)=([^&]*)/g;

function* maskForm(text: string): Stepwise<string> {
  let [masked, copied, count] = ['', 0, 0];
  for (const { 0: whole, 1: before = '', 2: name = '', 3: value = '', index } of text.matchAll(FIELD)) {
    if (++count % AT_ONCE === 0) yield;
    const isSecret = isSecretParameter(decodedField(name)) && value !== '';
    const shown = isSecret ? MASK : yield* maskField(value, 1);
    if (shown === value) continue;
    masked += `${text.slice(copied, index)}${before}${name}=${shown}`;
    copied = index + whole.length;
  }
  return masked + text.slice(copied);
}

function* maskField(value: string, depth: number): Stepwise<string> {
  const plain = decodedField(value);
  const shown = yield* maskWithin(yield* maskUrlStepwise(plain), depth);
  return shown === plain ? value : encodeURIComponent(shown);
}

function decodedField(name: string): string {
  try {
    return decodeURIComponent(name.replaceAll('+', ' '));
  } catch {
    return name;
  }
}

/** More of a part's head is not searched for its name. */
const MAX_HEAD = 8_192;
const BOUNDARY = /;[ \t]*boundary="?([^";\s]+)/i;
/** Quoted, as a token, or extended (RFC 8187). */
const NAME = /[;\s]name(\*?)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))/gi;
/** Lines in one step. */
const LINES_AT_ONCE = 1_000;
const PART_TYPE = /^content-type:[ \t]*([^\r\n]*)/im;

/**
 * Masks the parts of multipart/form-data (RFC 7578) that have that of a secret as their name. Reads each line once, however
 * many parts the text pretends to have.
 *
 * @param maskPart masks what another part contains, by its content type
 */
function* maskMultipart(
  text: string,
  contentType: string,
  maskPart: (text: string, contentType: string | null) => Stepwise<string>,
): Stepwise<string> {
  const delimiter = `--${BOUNDARY.exec(contentType)?.[1] ?? /^--([^\r\n]+)/.exec(text)?.[1] ?? ''}`;
  const masked: string[] = [];
  // Before the first delimiter nothing belongs to a part.
  let head = '';
  let headAt = -1;
  let valueAt = 0;
  const valueEnds = function* (end: number): Stepwise<void> {
    const value = text.slice(valueAt, end);
    // The line end before a delimiter belongs to it.
    const ending = value.endsWith('\r\n') ? '\r\n' : value.endsWith('\n') ? '\n' : '';
    const content = value.slice(0, value.length - ending.length);
    if (content === '') masked.push(ending);
    else if (namesIn(head).some(isSecretMember)) masked.push(MASK, ending);
    else masked.push(yield* maskPart(content, PART_TYPE.exec(head)?.[1] ?? null), ending);
    yield;
  };
  let lines = 0;
  for (let at = 0; at < text.length; ) {
    if (++lines % LINES_AT_ONCE === 0) yield;
    const lineEnd = text.indexOf('\n', at);
    const next = lineEnd === -1 ? text.length : lineEnd + 1;
    if (text.startsWith(delimiter, at)) {
      if (headAt === -1) yield* valueEnds(at);
      else masked.push(text.slice(headAt, at));
      masked.push(text.slice(at, next));
      headAt = next;
    } else if (headAt !== -1 && isBlank(text, at, next)) {
      head = text.slice(headAt, Math.min(at, headAt + MAX_HEAD));
      masked.push(text.slice(headAt, next));
      headAt = -1;
      valueAt = next;
    }
    at = next;
  }
  if (headAt === -1) yield* valueEnds(text.length);
  else masked.push(text.slice(headAt));
  return masked.join('');
}

function isBlank(text: string, at: number, next: number): boolean {
  return next - at === 1 ? text[at] === '\n' : next - at === 2 && text.startsWith('\r\n', at);
}

function namesIn(head: string): string[] {
  return [...head.matchAll(NAME)].map(([, star, quoted, token = '']) => {
    const name = quoted ?? token;
    return star === '' ? name : decoded(name.slice(name.lastIndexOf("'") + 1));
  });
}

function decoded(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}
