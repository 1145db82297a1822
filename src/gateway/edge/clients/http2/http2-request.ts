import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import type { ClientBody, ClientRequest } from '../../http/client-message.ts';

/**
 * A request that came by HTTP/2, as the same one would look in HTTP/1.1 (RFC 9113, 8.3.1): everything behind it needs
 * to know one form alone. nghttp2 has refused what RFC 9113 calls malformed before.
 */
export class Http2Request implements ClientRequest {
  readonly httpVersion = '2.0';
  readonly method: string | undefined;
  readonly url: string | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly rawHeaders: string[];
  readonly socket: Socket;
  readonly body: ClientBody | null;
  readonly upgrade = null;
  rawTrailers: string[] = [];
  readonly #stream: ServerHttp2Stream;

  /**
   * @param headers as Node hands them out; taken over
   * @param raw the same as a flat name, value list
   * @param socket of the connection
   */
  constructor(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, raw: readonly string[], socket: Socket) {
    this.#stream = stream;
    this.method = headers[':method'];
    this.url = headers[':path'];
    this.rawHeaders = rawHeadersOf(headers[':authority'], raw);
    headers.host = headers[':authority'] ?? headers.host;
    this.headers = headers;
    this.socket = socket;
    this.body = stream.endAfterHeaders ? null : stream;
    stream.on('trailers', (_trailers: object, _flags: number, rawTrailers: string[]) => {
      this.rawTrailers = rawTrailers;
    });
  }

  get complete(): boolean {
    return this.#stream.readableEnded;
  }
}

/** A Host header that says the same as `:authority` is dropped; another one is left for the guard to find. */
function rawHeadersOf(authority: string | undefined, raw: readonly string[]): string[] {
  const headers = authority === undefined ? [] : ['host', authority];
  let cookies = '';
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at] as string;
    const value = raw[at + 1] as string;
    if (name.startsWith(':') || (name === 'host' && value === authority)) continue;
    // Sent in crumbs, which compress better (RFC 9113, 8.2.3).
    if (name === 'cookie') cookies = cookies === '' ? value : `${cookies}; ${value}`;
    else headers.push(name, value);
  }
  if (cookies !== '') headers.push('cookie', cookies);
  return headers;
}
