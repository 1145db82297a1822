import type { OutgoingHttpHeaders } from 'node:http2';
import { nameAt, valueAt } from '../../../lib/http/header-fields.ts';
import { UNWRITABLE } from './headers.ts';

/** Error codes of RFC 9113, section 7. Node's constants would load all of `node:http2`. */
export const Http2Code = { noError: 0, internalError: 2, cancel: 8, enhanceYourCalm: 11, http11Required: 13 } as const;

/** Fields of HTTP/1.1 only; in HTTP/2 they make a message malformed (RFC 9113, 8.2.2). */
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

/** A valid header name (RFC 9110, 5.6.2); Node checks neither names nor values in HTTP/2. */
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/** Fields that Node refuses to send twice; repeated ones are joined. */
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
 * Headers for Node's HTTP/2: names in lower case, repeated ones separate where possible, as values such as challenges have
 * commas.
 * @throws {Error} when a field contains invalid characters
 */
export function http2Headers(raw: readonly string[]): OutgoingHttpHeaders {
  const headers: OutgoingHttpHeaders = Object.create(null);
  for (let at = 0; at < raw.length; at += 2) {
    const name = nameAt(raw, at).toLowerCase();
    if (!CONNECTION_SPECIFIC.has(name)) add(headers, name, valueAt(raw, at));
  }
  return headers;
}

function add(headers: OutgoingHttpHeaders, name: string, value: string): void {
  if (!NAME.test(name) || UNWRITABLE.test(value)) throw new Error(`invalid character in the header ${name}`);
  const before = headers[name];
  if (before === undefined) headers[name] = value;
  else if (Array.isArray(before)) before.push(value);
  else if (name === 'cookie') headers[name] = `${before}; ${value}`;
  else if (SENT_ONCE.has(name)) headers[name] = `${before}, ${value}`;
  else headers[name] = [String(before), value];
}
