/** Headers that frame the message or control the connection (RFC 9110, section 7.6.1): they do not belong to the request. */
export const CONNECTION_HEADERS: ReadonlySet<string> = new Set([
  'connection',
  'content-length',
  'expect',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/**
 * A header's name as CGI, WSGI and similar interfaces read it: to them, `x_user` and `x-user` are one header.
 *
 * @param name lower case
 */
export function hyphenated(name: string): string {
  return name.includes('_') ? name.replaceAll('_', '-') : name;
}

/**
 * A part of a text without the spaces and tabs at its ends: the only white space of HTTP (RFC 9110, section 5.6.3).
 * String#trim also removes no-break spaces, with which browsers and upstreams take a name for another one.
 */
export function trimSpace(text: string, from = 0, to = text.length): string {
  let start = from;
  let end = to;
  while (start < end && isSpace(text.charCodeAt(start))) start++;
  while (end > start && isSpace(text.charCodeAt(end - 1))) end--;
  return text.slice(start, end);
}

const isSpace = (code: number): boolean => code === 0x20 || code === 0x09;

/**
 * The name at a position of a list of headers: names and values in turn, as in Node's `rawHeaders`.
 *
 * @param at even, and less than the length of the list
 */
export function nameAt(headers: readonly string[], at: number): string {
  return headers[at] as string;
}

/** The value that belongs to the name at a position. */
export function valueAt(headers: readonly string[], at: number): string {
  return headers[at + 1] as string;
}

/** Header lines up to the end of the text (RFC 9110, 5.5 and 5.6.2). Folded ones are invalid (RFC 9112, 5.2). */
const FIELDS = /(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\r\n)*$/y;

/** @returns a flat name, value list; null when a line is malformed */
export function cleanFields(text: string, at: number): string[] | null {
  FIELDS.lastIndex = at;
  if (!FIELDS.test(text)) return null;
  const fields: string[] = [];
  for (let start = at; start < text.length; ) {
    const colon = text.indexOf(':', start);
    const end = text.indexOf('\r\n', colon);
    fields.push(text.slice(start, colon), trimSpace(text, colon + 1, end));
    start = end + 2;
  }
  return fields;
}

/** Compares lengths first, which avoids a lower-case copy of most names. */
export function isName(name: string, lower: string): boolean {
  return name.length === lower.length && (name === lower || name.toLowerCase() === lower);
}

const CLOSE = /(?:^|,)[ \t]*close[ \t]*(?:,|$)/i;
const KEEP_ALIVE = /(?:^|,)[ \t]*keep-alive[ \t]*(?:,|$)/i;

/** Whether a connection stays open after a message (RFC 9112, 9.3). */
export function isPersistent(connection: string | undefined, isHttp10: boolean): boolean {
  if (connection === undefined) return !isHttp10;
  return !CLOSE.test(connection) && (!isHttp10 || KEEP_ALIVE.test(connection));
}
