import type { OutgoingHttpHeaders } from 'node:http2';
import { UNWRITABLE } from './header-fields.ts';

/** Fields that only HTTP/1.1 knows; HTTP/2 takes a message with one for malformed (RFC 9113, 8.2.2). */
const CONNECTION_SPECIFIC: ReadonlySet<string> = new Set([
  'connection',
  'host',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'te',
  'transfer-encoding',
  'upgrade',
]);

/** What a header's name may hold (RFC 9110, 5.6.2); Node looks at neither names nor values in HTTP/2. */
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/** Fields that stay apart when repeated: commas are part of what they hold (RFC 9110, 5.3 and 11.6.1). */
const NEVER_JOINED: ReadonlySet<string> = new Set(['set-cookie', 'www-authenticate']);

/**
 * Fields as Node sends them by HTTP/2: names in lower case, most repeated ones as one.
 *
 * @param raw flat name, value list
 * @returns a new object
 * @throws {Error} when a field holds what cannot be sent
 */
export function http2Headers(raw: readonly string[]): OutgoingHttpHeaders {
  const headers: OutgoingHttpHeaders = Object.create(null);
  for (let at = 0; at < raw.length; at += 2) {
    const name = (raw[at] as string).toLowerCase();
    if (!CONNECTION_SPECIFIC.has(name)) add(headers, name, raw[at + 1] as string);
  }
  return headers;
}

function add(headers: OutgoingHttpHeaders, name: string, value: string): void {
  if (!NAME.test(name) || UNWRITABLE.test(value)) throw new Error(`the header ${name} holds what cannot be sent`);
  const before = headers[name];
  if (before === undefined) headers[name] = NEVER_JOINED.has(name) ? [value] : value;
  else if (Array.isArray(before)) before.push(value);
  else headers[name] = `${before}${name === 'cookie' ? '; ' : ', '}${value}`;
}
