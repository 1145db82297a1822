import { maskUrlStepwise, replaceStepwise } from '../../../lib/masking/mask-url.ts';
import { isSecretMember, isSecretParameter, MASK } from '../../../lib/masking/secret-names.ts';
import { runAtOnce, type Stepwise } from '../../../lib/stepwise.ts';

/** Names or lines in one step, which take less than a millisecond. */
const AT_ONCE = 200;

/** Masks the text of a message like {@link maskTextStepwise}. */
export function maskText(text: string, contentType: string | null): string {
  return runAtOnce(maskTextStepwise(text, contentType));
}

/**
 * Masks values of password-like names in the text of a body or a message: in forms, in server-sent events, and in what looks
 * like members of JSON, wherever it begins. Of other formats, it masks URLs. Cut text is masked as well. Takes time in
 * proportion to the text.
 *
 * @param contentType as in the header; null: decided by the text
 */
export function* maskTextStepwise(text: string, contentType: string | null): Stepwise<string> {
  const type = contentType?.toLowerCase() ?? '';
  if (type.startsWith('application/x-www-form-urlencoded')) return yield* maskForm(text);
  if (type.startsWith('multipart/')) return yield* maskMultipart(text, contentType ?? '', maskPart);
  if (type.startsWith('text/event-stream')) return yield* maskEvents(text);
  return yield* maskOther(text);
}

function* maskOther(text: string): Stepwise<string> {
  return yield* maskMembers(yield* maskUrlStepwise(text));
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
      masked += (yield* maskData()) + (yield* maskUrlStepwise(line)) + ending;
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
const FIELD = /(^|&)([^&=]+)=[^&]*/g;

function maskForm(text: string): Stepwise<string> {
  return replaceStepwise(text, FIELD, ([, before, name = '']) =>
    isSecretParameter(decodedField(name)) ? `${before}${name}=${MASK}` : null,
  );
}

function decodedField(name: string): string {
  try {
    return decodeURIComponent(name.replaceAll('+', ' '));
  } catch {
    return name;
  }
}

/**
 * Masks members of JSON, also behind what is none, as in frames of Socket.IO. Changes nothing but the values, so that numbers,
 * spaces and the order stay as they were sent.
 */
function* maskMembers(text: string): Stepwise<string> {
  let [masked, copied, count] = ['', 0, 0];
  for (let at = text.indexOf('"'); at !== -1; at = text.indexOf('"', at)) {
    if (++count % AT_ONCE === 0) yield;
    const end = endOfString(text, at);
    const value = startOfValue(text, end);
    if (value !== null && isSecretMember(stringIn(text.slice(at, end)))) {
      const after = yield* endOfValue(text, value);
      masked += text.slice(copied, value) + (after > value ? `"${MASK}"` : '');
      copied = at = after;
      continue;
    }
    // In other text, quotes need not come in pairs: what ends one string may begin the next.
    at = end === text.length ? end : end - 1;
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

function stringIn(token: string): string {
  try {
    return String(JSON.parse(token));
  } catch {
    return token.slice(1, -1);
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
