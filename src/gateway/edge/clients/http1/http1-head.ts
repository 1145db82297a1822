import type { ClientHeaders } from '../../http/client-message.ts';
import { isPersistent, MalformedMessage, parseFields } from '../../http/header-fields.ts';

/** The request line and headers of a request by HTTP/1, and what they say about the message and the connection. */
export interface Http1Head {
  readonly method: string;
  readonly target: string;
  readonly version: '1.0' | '1.1';
  /** Flat name, value list as received. */
  readonly rawHeaders: string[];
  readonly headers: ClientHeaders;
  /** Bytes of the body; null when it comes in chunks. */
  readonly length: number | null;
  /** Whether the client may send another request on the connection. */
  readonly keepAlive: boolean;
  /** The protocol that the client would rather go on with, when there is no body; null for none. */
  readonly upgrade: string | null;
}

/** What a connection is answered by that has sent no request. */
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

/** In upper case alone: what one server takes for HEAD or CONNECT must not be something else to another. */
const REQUEST_LINE = /^([A-Z][A-Z0-9_-]*) ([\x21-\x7e]+) HTTP\/1\.([01])$/;
const DIGITS = /^\d{1,15}$/;
const UPGRADE = /(?:^|,)[ \t]*upgrade[ \t]*(?:,|$)/i;

/** Headers that the edge itself looks at. */
const KNOWN: ReadonlySet<string> = new Set<keyof ClientHeaders>([
  'accept',
  'connection',
  'content-length',
  'expect',
  'host',
  'sec-websocket-key',
  'sec-websocket-version',
  'te',
  'transfer-encoding',
  'upgrade',
]);

/**
 * Reads the complete head of a request, strictly: what two readers could take for different messages is refused.
 *
 * @param text Latin-1, every line with its CR LF, without the empty line that ends it
 * @throws {MalformedMessage}
 */
export function parseHttp1Head(text: string): Http1Head {
  const lineEnd = text.indexOf('\r\n');
  const line = REQUEST_LINE.exec(text.slice(0, lineEnd));
  if (line === null) throw new MalformedMessage('no request line of HTTP/1.1');
  const rawHeaders = parseFields(text, lineEnd + 2);
  const old = line[3] === '0';
  const headers = knownOf(rawHeaders, old);
  const length = lengthOf(headers, old);
  return {
    method: line[1] as string,
    target: line[2] as string,
    version: old ? '1.0' : '1.1',
    rawHeaders,
    headers,
    length,
    keepAlive: isPersistent(headers.connection, old),
    // Passed over with a body, as any server may: curl --http2 sends both.
    upgrade: old || length !== 0 ? null : upgradeOf(headers),
  };
}

function knownOf(raw: readonly string[], old: boolean): ClientHeaders {
  const known: { -readonly [name in keyof ClientHeaders]: ClientHeaders[name] } = {
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
  for (let at = 0; at < raw.length; at += 2) {
    const name = (raw[at] as string).toLowerCase();
    if (!KNOWN.has(name)) continue;
    const before = known[name as keyof ClientHeaders];
    known[name as keyof ClientHeaders] = before === undefined ? raw[at + 1] : `${before}, ${raw[at + 1]}`;
  }
  // Whoever speaks HTTP/1.0 cannot wait for leave to send a body (RFC 9110, 10.1.1).
  if (old) known.expect = undefined;
  return known;
}

/** How long the body is, by one way to tell it (RFC 9112, 6.3): two are how requests are smuggled. */
function lengthOf(headers: ClientHeaders, old: boolean): number | null {
  const { 'content-length': length, 'transfer-encoding': encoding } = headers;
  if (encoding === undefined) {
    if (length === undefined) return 0;
    if (!DIGITS.test(length)) throw new MalformedMessage('no single valid content-length');
    return Number(length);
  }
  if (encoding.toLowerCase() !== 'chunked') throw new MalformedMessage('transfer-encoding other than chunked');
  if (old) throw new MalformedMessage('transfer-encoding in HTTP/1.0');
  if (length !== undefined) throw new MalformedMessage('both length and transfer-encoding');
  return null;
}

function upgradeOf({ connection, upgrade }: ClientHeaders): string | null {
  return upgrade !== undefined && connection !== undefined && UPGRADE.test(connection) ? upgrade : null;
}
