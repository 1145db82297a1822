import { maskUrl } from '../../../lib/masking/mask-url.ts';
import { isSecretMember, isSecretParameter, MASK } from '../../../lib/masking/secret-names.ts';
import { maskMultipart } from './mask-multipart.ts';

/**
 * Masks values of password-like names in the text of a body or a message: in forms, in server-sent events, and in what looks
 * like members of JSON, wherever it begins. Of other formats, it masks URLs. Cut text is masked as well. Takes time in
 * proportion to the text.
 *
 * @param contentType as in the header; null: decided by the text
 */
export function maskText(text: string, contentType: string | null): string {
  const type = contentType?.toLowerCase() ?? '';
  if (type.startsWith('application/x-www-form-urlencoded')) return maskForm(text);
  if (type.startsWith('multipart/')) return maskMultipart(text, contentType ?? '', maskPart);
  if (type.startsWith('text/event-stream')) return maskEvents(text);
  return maskMembers(maskUrl(text));
}

/** Parts that have parts themselves are masked as other text: nobody nests without an end. */
function maskPart(text: string, contentType: string | null): string {
  return /^multipart\//i.test(contentType ?? '') ? maskMembers(maskUrl(text)) : maskText(text, contentType);
}

/** The lines of an event's data are one text, which may be JSON. */
function maskEvents(text: string): string {
  const masked: string[] = [];
  let data: { prefix: string; value: string; ending: string }[] = [];
  const dataEnds = () => {
    if (data.length === 0) return;
    const sent = data.map(({ value }) => value).join('\n');
    const shown = maskText(sent, null);
    const [{ prefix = '', ending = '' } = {}] = data;
    if (shown === sent) for (const line of data) masked.push(line.prefix, line.value, line.ending);
    else masked.push(prefix, shown.replaceAll('\n', `${ending}${prefix}`), data.at(-1)?.ending ?? '');
    data = [];
  };
  const pieces = text.split(/(\r\n|\n|\r)/);
  for (let at = 0; at < pieces.length; at += 2) {
    const [line = '', ending = ''] = [pieces[at], pieces[at + 1]];
    const prefix = dataPrefix(line);
    if (prefix !== null) data.push({ prefix, value: line.slice(prefix.length), ending });
    else {
      dataEnds();
      masked.push(maskUrl(line), ending);
    }
  }
  dataEnds();
  return masked.join('');
}

function dataPrefix(line: string): string | null {
  if (line.startsWith('data: ')) return 'data: ';
  if (line.startsWith('data:')) return 'data:';
  // At the beginning of the stream.
  return /^\ufeffdata: ?/.exec(line)?.[0] ?? null;
}

function maskForm(text: string): string {
  return text
    .split('&')
    .map((pair) => {
      const at = pair.indexOf('=');
      return at > 0 && isSecretParameter(decodedField(pair.slice(0, at))) ? `${pair.slice(0, at)}=${MASK}` : pair;
    })
    .join('&');
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
function maskMembers(text: string): string {
  const parts: string[] = [];
  let copied = 0;
  for (let at = text.indexOf('"'); at !== -1; at = text.indexOf('"', at)) {
    const end = endOfString(text, at);
    const value = startOfValue(text, end);
    if (value !== null && isSecretMember(stringIn(text.slice(at, end)))) {
      const after = endOfValue(text, value);
      parts.push(text.slice(copied, value), after > value ? `"${MASK}"` : '');
      copied = at = after;
      continue;
    }
    // In other text, quotes need not come in pairs: what ends one string may begin the next.
    at = end === text.length ? end : end - 1;
  }
  return parts.length === 0 ? text : parts.join('') + text.slice(copied);
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
  while (at < text.length && ' \t\r\n'.includes(text[at] as string)) at++;
  return at;
}

function endOfValue(text: string, start: number): number {
  const first = text[start];
  if (first === '"') return endOfString(text, start);
  if (first === '{' || first === '[') return endOfNested(text, start);
  let at = start;
  while (at < text.length && !',}] \t\r\n'.includes(text[at] as string)) at++;
  return at;
}

function endOfNested(text: string, start: number): number {
  let depth = 0;
  for (let at = start; at < text.length; ) {
    const each = text[at] as string;
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
