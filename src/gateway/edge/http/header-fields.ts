import { trimSpace } from '../../../lib/http/trim-space.ts';

/** Not an HTTP/1.1 message, or an ambiguous one. */
export class MalformedMessage extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'MalformedMessage';
  }
}

/** A block of headers exceeds the limit. */
export class HeadersTooLong extends MalformedMessage {
  constructor() {
    super('headers too long');
    this.name = 'HeadersTooLong';
  }
}

/** Characters that no header's value may contain: with CR LF, a value from a policy could inject a header. */
export const UNWRITABLE = /[^\t\x20-\x7e\x80-\xff]/;

const CLOSE = /(?:^|,)[ \t]*close[ \t]*(?:,|$)/i;
const KEEP_ALIVE = /(?:^|,)[ \t]*keep-alive[ \t]*(?:,|$)/i;

/**
 * Header lines up to the end of the text (RFC 9110, 5.5 and 5.6.2). Folded lines, which start with white space, are
 * invalid (RFC 9112, 5.2).
 */
const FIELDS = /(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\r\n)*$/y;

/**
 * Parses header lines.
 *
 * @param text lines with their CR LF
 * @param at position of the first one
 * @returns a flat name, value list
 * @throws {MalformedMessage}
 */
export function parseFields(text: string, at: number): string[] {
  FIELDS.lastIndex = at;
  if (!FIELDS.test(text)) throw new MalformedMessage('malformed header line');
  const fields: string[] = [];
  for (let start = at; start < text.length; ) {
    const colon = text.indexOf(':', start);
    const end = text.indexOf('\r\n', colon);
    fields.push(text.slice(start, colon), trimSpace(text, colon + 1, end));
    start = end + 2;
  }
  return fields;
}

/** Formats a header line with its CR LF; throws when the value contains invalid characters. */
export function headerLine(name: string, value: string): string {
  if (UNWRITABLE.test(value)) throw new Error(`invalid character in the header ${name}`);
  return `${name}: ${value}\r\n`;
}

/** Whether two header names are equal, ignoring case. */
export function isName(name: string, lower: string): boolean {
  return name === lower || name.toLowerCase() === lower;
}

/**
 * Whether a connection stays open after a message (RFC 9112, 9.3).
 *
 * @param connection value of the Connection header
 * @param isHttp10 whether the message is HTTP/1.0
 */
export function isPersistent(connection: string | undefined, isHttp10: boolean): boolean {
  if (connection === undefined) return !isHttp10;
  return !CLOSE.test(connection) && (!isHttp10 || KEEP_ALIVE.test(connection));
}
