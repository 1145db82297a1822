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

/** Fields that Node refuses to send twice. Who repeats them all the same has them joined. */
const SENT_ONCE: ReadonlySet<string> = new Set([
  'access-control-allow-credentials',
  'access-control-max-age',
  'access-control-request-method',
  'age',
  'authorization',
  'content-encoding',
  'content-language',
  'content-length',
  'content-location',
  'content-md5',
  'content-range',
  'content-type',
  'date',
  'dnt',
  'etag',
  'expires',
  'from',
  'if-match',
  'if-modified-since',
  'if-none-match',
  'if-range',
  'if-unmodified-since',
  'last-modified',
  'location',
  'max-forwards',
  'proxy-authorization',
  'range',
  'referer',
  'retry-after',
  'tk',
  'upgrade-insecure-requests',
  'user-agent',
  'x-content-type-options',
]);

/**
 * Fields as Node sends them by HTTP/2: names in lower case, repeated ones apart as far as possible. Values may hold commas
 * of their own, such as challenges and gRPC's binary metadata, which not every reader takes apart again.
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
  if (before === undefined) headers[name] = value;
  else if (Array.isArray(before)) before.push(value);
  else if (name === 'cookie') headers[name] = `${before}; ${value}`;
  else if (SENT_ONCE.has(name)) headers[name] = `${before}, ${value}`;
  else headers[name] = [String(before), value];
}
