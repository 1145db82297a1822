/** What came is no HTTP/1.1 message, or one that two readers could understand differently. */
export class MalformedMessage extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'MalformedMessage';
  }
}

/** A block of headers is longer than is kept. */
export class HeadersTooLong extends MalformedMessage {
  constructor() {
    super('too many or too long headers');
    this.name = 'HeadersTooLong';
  }
}

/** What no header's value may hold: with it, one that a policy wrote could become a header of its own. */
export const UNWRITABLE = /[^\t\x20-\x7e\x80-\xff]/;

const CLOSE = /(?:^|,)[ \t]*close[ \t]*(?:,|$)/i;
const KEEP_ALIVE = /(?:^|,)[ \t]*keep-alive[ \t]*(?:,|$)/i;

/**
 * Header lines up to the end (RFC 9110, 5.5 and 5.6.2). A line that begins with white space, once a continuation, is none
 * (RFC 9112, 5.2).
 */
const FIELDS = /(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\r\n)*$/y;

/**
 * Reads header lines.
 *
 * @param text lines with their CR LF
 * @param at where the first one begins
 * @returns a flat name, value list
 * @throws {MalformedMessage}
 */
export function parseFields(text: string, at: number): string[] {
  FIELDS.lastIndex = at;
  if (!FIELDS.test(text)) throw new MalformedMessage('a malformed header line');
  const fields: string[] = [];
  for (let start = at; start < text.length; ) {
    const colon = text.indexOf(':', start);
    const end = text.indexOf('\r\n', colon);
    fields.push(text.slice(start, colon), valueBetween(text, colon + 1, end));
    start = end + 2;
  }
  return fields;
}

/**
 * A header as it is sent, with its CR LF.
 *
 * @throws {Error} when it holds what cannot be sent
 */
export function headerLine(name: string, value: string): string {
  if (UNWRITABLE.test(value)) throw new Error(`the header ${name} holds what cannot be sent`);
  return `${name}: ${value}\r\n`;
}

/** Whether a header's name is this one, whose case does not matter. */
export function isName(name: string, lower: string): boolean {
  return name === lower || name.toLowerCase() === lower;
}

/**
 * Whether a connection stays open behind a message (RFC 9112, 9.3).
 *
 * @param connection value of the Connection header
 * @param old whether the message is HTTP/1.0
 */
export function isPersistent(connection: string | undefined, old: boolean): boolean {
  if (connection === undefined) return !old;
  return !CLOSE.test(connection) && (!old || KEEP_ALIVE.test(connection));
}

/** Without white space around it. */
function valueBetween(text: string, from: number, to: number): string {
  let start = from;
  let end = to;
  while (start < end && isBlank(text.charCodeAt(start))) start++;
  while (end > start && isBlank(text.charCodeAt(end - 1))) end--;
  return text.slice(start, end);
}

const isBlank = (code: number): boolean => code === 0x20 || code === 0x09;
