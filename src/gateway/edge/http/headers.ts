import { ByteBlocks } from '../../../lib/byte-blocks.ts';
import { cleanFields, hyphenated, nameAt, trimSpace, valueAt } from '../../../lib/http/header-fields.ts';
import { MalformedMessage } from '../../../lib/http/response-head.ts';
import { ERROR_CODE_HEADER } from './error-response.ts';

export class HeadersTooLong extends MalformedMessage {
  /** @param limit in bytes */
  constructor(limit: number) {
    super(`its header is longer than ${limit / 1024} KiB`);
    this.name = 'HeadersTooLong';
  }
}

const END = '\r\n\r\n';
const LENIENT_END = /\n\r?\n/;

/** Collects a block of headers, in pieces of any size, up to the empty line that ends it. */
export class HeaderBlock {
  /** The text of a complete block: every line has its end, and the empty line is left out. */
  text = '';
  complete = false;
  /** An unfinished block, and its last characters, which may be the start of its end. */
  readonly #bytes = new ByteBlocks();
  #tail = '';

  /** @param lenient whether lines may end in LF alone (RFC 9112, 2.2) */
  constructor(
    private readonly limit: number,
    private readonly lenient = false,
  ) {}

  get held(): number {
    return this.#bytes.held;
  }

  get length(): number {
    return this.#bytes.length;
  }

  get begun(): string {
    return this.#bytes.joined().toString('latin1');
  }

  /** @param before text to prepend to the next bytes */
  start(before: string): void {
    this.text = '';
    this.complete = false;
    this.#bytes.clear();
    this.#tail = before;
    if (before !== '') this.#bytes.add(Buffer.from(before, 'latin1'));
  }

  /** Takes the bytes that belong to the block; returns the position after them. @throws {HeadersTooLong} */
  take(bytes: Buffer, at: number): number {
    if (this.#bytes.length === 0) {
      // Usually the whole block arrives at once; the body after it need not be decoded.
      const end = bytes.indexOf(END, at, 'latin1');
      if (end !== -1) {
        this.#check(end - at);
        this.complete = true;
        this.text = bytes.toString('latin1', at, end + 2);
        const earlier = this.lenient ? LENIENT_END.exec(this.text) : null;
        if (earlier === null) return end + END.length;
        this.text = this.text.slice(0, earlier.index + 1);
        return at + earlier.index + earlier[0].length;
      }
    }
    return this.#append(bytes, at);
  }

  #append(bytes: Buffer, at: number): number {
    const block = this.#bytes;
    const before = block.length;
    const to = Math.min(bytes.length, at + this.limit + END.length);
    const seam = this.#tail + bytes.toString('latin1', at, to);
    const found = this.#endIn(seam);
    const end = found === null ? -1 : before - this.#tail.length + found.from;
    this.#check(end === -1 ? before + to - at : end - 2);
    block.add(bytes, at, to);
    this.#tail = seam.slice(1 - END.length);
    if (end === -1) return to;
    this.complete = true;
    this.text = block.joined().toString('latin1', 0, end);
    block.clear();
    return at + end + (found?.length ?? 0) - before;
  }

  /** Where the text of the block ends, and how many characters of the empty line follow. */
  #endIn(text: string): { from: number; length: number } | null {
    if (!this.lenient) {
      const at = text.indexOf(END);
      return at === -1 ? null : { from: at + 2, length: 2 };
    }
    const end = LENIENT_END.exec(text);
    return end === null ? null : { from: end.index + 1, length: end[0].length - 1 };
  }

  #check(length: number): void {
    if (length > this.limit) throw new HeadersTooLong(this.limit);
  }
}

/** Characters that no header's value may contain: with CR LF, a value from a policy could inject a header. */
export const UNWRITABLE = /[^\t\x20-\x7e\x80-\xff]/;

/** @returns a flat name, value list @throws {MalformedMessage} */
export function parseFields(text: string, at: number): string[] {
  const fields = cleanFields(text, at);
  if (fields === null) throw new MalformedMessage('malformed header line');
  return fields;
}

/** Formats a header line with its CR LF; throws when the value contains invalid characters. */
export function headerLine(name: string, value: string): string {
  if (UNWRITABLE.test(value)) throw new Error(`invalid character in the header ${name}`);
  return `${name}: ${value}\r\n`;
}

/** Whether a response to a request has content (RFC 9110, 6.4.1). */
export function mayHaveBody(method: string, status: number): boolean {
  return method !== 'HEAD' && status >= 200 && status !== 204 && status !== 304;
}

/** More header lines than any client sends. */
export const MAX_HEADER_LINES = 200;

/** The name in a Host header or SNI, as endpoints are registered: in lower case, without port and trailing dot. */
export function hostNameOf(host: string): string {
  const colon = host.indexOf(':', host.startsWith('[') ? host.indexOf(']') : 0);
  let name = colon === -1 ? host : host.slice(0, colon);
  if (name.endsWith('.')) name = name.slice(0, -1);
  return name.toLowerCase();
}

/** Headers that concern one connection only (RFC 9110, 7.6.1), and those that the proxy writes again. */
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
  'expect',
  'http2-settings',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'transfer-encoding',
  'upgrade',
]);

/** Headers that a Connection header must not remove: without them, the message would change its meaning. */
const NEVER_DROPPED: ReadonlySet<string> = new Set(['content-length', 'host']);

/** Fields that frame, route or authenticate a message; they are invalid as trailers (RFC 9110, 6.5.1). */
const NEVER_TRAILERS: ReadonlySet<string> = new Set([
  'authorization',
  'content-encoding',
  'content-length',
  'content-range',
  'content-type',
  'cookie',
  'host',
  'set-cookie',
  'trailer',
  ERROR_CODE_HEADER,
]);

interface Forwarded {
  address: string;
  protocol: 'http' | 'https';
}

/**
 * The headers of a request for the upstream, as the client sent them, without those of its connection and without names with
 * underscores that upstreams could take for the gateway's.
 * @param raw flat name, value list
 * @param connection the Connection header, which may name further ones to remove
 * @param from for the X-Forwarded headers; null: another gateway writes them
 */
export function requestHeaders(
  raw: readonly string[],
  connection: string | undefined,
  from: Forwarded | null,
): string[] {
  const dropped = namedIn(connection);
  const headers: string[] = [];
  let host = '';
  let forwardedFor = -1;
  let forwardedProto = -1;
  let forwardedHost = false;
  for (let at = 0; at < raw.length; at += 2) {
    const name = nameAt(raw, at);
    const written = name.toLowerCase();
    const lower = hyphenated(written);
    if (HOP_BY_HOP.has(lower) || dropped?.has(lower) || (lower !== written && isOurs(lower))) continue;
    if (lower === 'host') host = valueAt(raw, at);
    else if (lower === 'x-forwarded-for') {
      // Several lines are one list (RFC 9110, 5.3), of which many upstreams read the first line only.
      if (forwardedFor !== -1) {
        headers[forwardedFor] = `${headers[forwardedFor]}, ${valueAt(raw, at)}`;
        continue;
      }
      forwardedFor = headers.length + 1;
    } else if (lower === 'x-forwarded-proto') forwardedProto = headers.length + 1;
    else if (lower === 'x-forwarded-host') forwardedHost = true;
    headers.push(name, valueAt(raw, at));
  }
  if (from === null) return headers;
  appendTo(headers, forwardedFor, 'X-Forwarded-For', from.address);
  appendTo(headers, forwardedProto, 'X-Forwarded-Proto', from.protocol);
  if (!forwardedHost) headers.push('X-Forwarded-Host', host);
  return headers;
}

/** Whether the gateway writes a header, or relies on it. */
function isOurs(lower: string): boolean {
  return lower.startsWith('x-forwarded-') || lower === 'content-length';
}

function appendTo(headers: string[], at: number, name: string, value: string): void {
  if (at === -1) headers.push(name, value);
  else headers[at] = `${headers[at]}, ${value}`;
}

/**
 * The headers of a response for the client, without those of the upstream's connection and the mark of the edge's errors.
 * @param status 1xx and 204 have neither body nor length (RFC 9110, 8.6)
 */
export function responseHeaders(raw: readonly string[], connection: string | undefined, status: number): string[] {
  const dropped = namedIn(connection);
  const headers: string[] = [];
  for (let at = 0; at < raw.length; at += 2) {
    const name = nameAt(raw, at);
    const lower = name.toLowerCase();
    if (HOP_BY_HOP.has(lower) || lower === ERROR_CODE_HEADER || dropped?.has(hyphenated(lower))) continue;
    if ((status < 200 || status === 204) && lower === 'content-length') continue;
    headers.push(name, valueAt(raw, at));
  }
  return headers;
}

export function passableTrailers(raw: readonly string[]): [name: string, value: string][] {
  const trailers: [string, string][] = [];
  for (let at = 0; at < raw.length; at += 2) {
    const name = nameAt(raw, at);
    const lower = hyphenated(name.toLowerCase());
    if (HOP_BY_HOP.has(lower) || NEVER_TRAILERS.has(lower) || lower.startsWith('x-forwarded-')) continue;
    trailers.push([name, valueAt(raw, at)]);
  }
  return trailers;
}

/** The value of a header, joined when it is repeated; undefined when it is missing. */
export function headerValue(raw: readonly string[], wanted: string): string | undefined {
  let value: string | undefined;
  for (let at = 0; at < raw.length; at += 2) {
    if (nameAt(raw, at).toLowerCase() !== wanted) continue;
    value = value === undefined ? raw[at + 1] : `${value}, ${raw[at + 1]}`;
  }
  return value;
}

/** The headers that a Connection header names, hyphenated; undefined for its usual values. */
function namedIn(connection: string | undefined): ReadonlySet<string> | undefined {
  if (connection === undefined || /^(?:keep-alive|close)$/i.test(connection)) return undefined;
  const names = connection
    .toLowerCase()
    .split(',')
    .map((name) => hyphenated(trimSpace(name)));
  return new Set(names.filter((name) => !NEVER_DROPPED.has(name)));
}
