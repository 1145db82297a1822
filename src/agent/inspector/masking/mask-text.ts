import { maskUrl } from './mask-headers.ts';
import { isSecretMember, isSecretParameter, MASK } from './secret-names.ts';

/** The name of a part in multipart/form-data, and where its value begins. */
const FORM_PART = /(\bname="([^"\r\n]{1,200})"[^\r\n]{0,1000}\r?\n(?:[^\r\n]{1,1000}\r?\n){0,8}\r?\n)([^\r\n]+)/g;

/**
 * Masks values of password-like names in the text of a body or a message: in forms and in what looks like JSON. Text in
 * other formats is shown as it is, but for URLs. Cut text is masked as well.
 *
 * @param contentType as in the header; null: decided by the text
 */
export function maskText(text: string, contentType: string | null): string {
  const type = contentType?.toLowerCase() ?? '';
  if (type.startsWith('application/x-www-form-urlencoded')) return maskForm(text);
  if (type.startsWith('multipart/')) {
    return text.replace(FORM_PART, (all, head: string, name: string) =>
      isSecretMember(name) ? `${head}${MASK}` : all,
    );
  }
  return isJson(type, text) ? maskJson(text) : maskUrl(text);
}

function isJson(type: string, text: string): boolean {
  return /[/+]json\b|ndjson/.test(type) || /^\s*[[{]/.test(text);
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

/** Changes nothing but the values, so that numbers, spaces and the order stay as they were sent. */
function maskJson(text: string): string {
  const parts: string[] = [];
  let copied = 0;
  let at = 0;
  while (at < text.length) {
    if (text[at] !== '"') {
      at++;
      continue;
    }
    const end = endOfString(text, at);
    const token = text.slice(at, end);
    const value = startOfValue(text, end);
    if (value !== null && isSecretMember(stringIn(token))) {
      const after = endOfValue(text, value);
      parts.push(text.slice(copied, value), after > value ? `"${MASK}"` : '');
      copied = at = after;
      continue;
    }
    if (value === null && token.includes('?')) {
      // A URL in a value may have a token in its query.
      parts.push(text.slice(copied, at), maskUrl(token));
      copied = end;
    }
    at = end;
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
