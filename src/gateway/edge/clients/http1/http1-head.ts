import type { ClientHeaders } from '../../http/client-message.ts';
import { isPersistent, MalformedMessage, parseFields } from '../../http/header-fields.ts';

/** The request line and headers of an HTTP/1 request, and what follows from them. */
export interface Http1Head {
  readonly method: string;
  readonly target: string;
  readonly version: '1.0' | '1.1';
  /** Flat name, value list as received. */
  readonly rawHeaders: string[];
  readonly headers: ClientHeaders;
  /** Bytes of the body; null with chunked encoding. */
  readonly length: number | null;
  /** Whether the client may send another request on the connection. */
  readonly keepAlive: boolean;
  /** The protocol that the client asks to switch to, in a request without a body; null for none. */
  readonly upgrade: string | null;
}

/** Stands in for a request that could not be parsed. */
export const NO_HEAD: Http1Head = {
  method: 'GET',
  target: '/',
  version: '1.1',
  rawHeaders: [],
  headers: {},
  length: 0,
  keepAlive: false,
  upgrade: null,
};

/** Methods in upper case only: servers that ignore case would disagree with others about HEAD and CONNECT. */
const REQUEST_LINE = /^([A-Z][A-Z0-9_-]*) ([\x21-\x7e]+) HTTP\/1\.([01])$/;
const DIGITS = /^\d{1,15}$/;
const UPGRADE = /(?:^|,)[ \t]*upgrade[ \t]*(?:,|$)/i;

/** The headers that the edge itself uses. */
const NO_HEADERS: { -readonly [name in keyof ClientHeaders]: ClientHeaders[name] } = {
  accept: undefined,
  connection: undefined,
  'content-length': undefined,
  expect: undefined,
  host: undefined,
  'sec-websocket-key': undefined,
  'sec-websocket-version': undefined,
  te: undefined,
  'transfer-encoding': undefined,
  upgrade: undefined,
};
const KNOWN: ReadonlySet<string> = new Set(Object.keys(NO_HEADERS));

/**
 * Parses the complete head of a request strictly: rejects everything that another server could read differently.
 *
 * @param text Latin-1, every line with its CR LF, without the empty line that ends it
 * @throws {MalformedMessage}
 */
export function parseHttp1Head(text: string): Http1Head {
  const lineEnd = text.indexOf('\r\n');
  const line = REQUEST_LINE.exec(text.slice(0, lineEnd));
  if (line === null) throw new MalformedMessage('invalid request line');
  const rawHeaders = parseFields(text, lineEnd + 2);
  const isHttp10 = line[3] === '0';
  const headers = knownOf(rawHeaders, isHttp10);
  const length = lengthOf(headers, isHttp10);
  return {
    method: line[1] as string,
    target: line[2] as string,
    version: isHttp10 ? '1.0' : '1.1',
    rawHeaders,
    headers,
    length,
    keepAlive: isPersistent(headers.connection, isHttp10),
    // Ignored in requests with a body, as any server may: curl --http2 sends both.
    upgrade: isHttp10 || length !== 0 ? null : upgradeOf(headers),
  };
}

function knownOf(raw: readonly string[], isHttp10: boolean): ClientHeaders {
  const known = { ...NO_HEADERS };
  for (let at = 0; at < raw.length; at += 2) {
    const name = (raw[at] as string).toLowerCase();
    if (!KNOWN.has(name)) continue;
    const before = known[name as keyof ClientHeaders];
    known[name as keyof ClientHeaders] = before === undefined ? raw[at + 1] : `${before}, ${raw[at + 1]}`;
  }
  // HTTP/1.0 clients cannot expect 100-continue (RFC 9110, 10.1.1).
  if (isHttp10) known.expect = undefined;
  return known;
}

/** The length of the body (RFC 9112, 6.3). Two contradicting lengths would enable request smuggling. */
function lengthOf(headers: ClientHeaders, isHttp10: boolean): number | null {
  const { 'content-length': length, 'transfer-encoding': encoding } = headers;
  if (encoding === undefined) {
    if (length === undefined) return 0;
    if (!DIGITS.test(length)) throw new MalformedMessage('invalid content-length');
    return Number(length);
  }
  if (encoding.toLowerCase() !== 'chunked') throw new MalformedMessage('unsupported transfer-encoding');
  if (isHttp10) throw new MalformedMessage('transfer-encoding in HTTP/1.0');
  if (length !== undefined) throw new MalformedMessage('both content-length and transfer-encoding');
  return null;
}

function upgradeOf({ connection, upgrade }: ClientHeaders): string | null {
  return upgrade !== undefined && connection !== undefined && UPGRADE.test(connection) ? upgrade : null;
}
