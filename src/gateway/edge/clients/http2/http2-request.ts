import type { IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import { nameAt, valueAt } from '../../../../lib/http/header-fields.ts';
import type { ClientBody, ClientRequest } from '../../http/client-message.ts';
import type { ReceivedRequest } from '../body-progress.ts';
import { unreadBytes } from '../client-memory.ts';

/** Bytes of memory that small pieces of a body share. */
const SMALL = 2048;
const NOTHING = Buffer.alloc(0);
/** Methods whose requests hardly ever have a body. */
const BODILESS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'DELETE', 'OPTIONS', 'TRACE']);

/** An HTTP/2 request in the form of HTTP/1.1 (RFC 9113, 8.3.1). nghttp2 has rejected those that RFC 9113 calls malformed. */
export class Http2Request implements ClientRequest, ReceivedRequest {
  readonly httpVersion = '2.0';
  readonly method: string | undefined;
  readonly url: string | undefined;
  readonly rawHeaders: string[];
  body: ClientBody | null;
  readonly upgrade = null;
  rawTrailers: string[] = [];
  received = 0;
  /** Bytes of memory of the unread part of the body, when they were last counted. */
  unread = 0;
  headBytes = 0;
  #small: Buffer = NOTHING;
  #onBegun: (() => void) | null = null;

  /**
   * @param headers modified here
   * @param raw flat name, value list
   * @param onUnread called with the growth of {@link unread}
   */
  constructor(
    private readonly stream: ServerHttp2Stream,
    readonly headers: IncomingHttpHeaders,
    raw: readonly string[],
    readonly socket: Socket,
    private readonly onUnread: (bytes: number) => void,
  ) {
    this.method = headers[':method'];
    this.url = headers[':path'];
    this.rawHeaders = rawHeadersOf(headers[':authority'], raw);
    for (const text of raw) this.headBytes += text.length;
    headers.host = headers[':authority'] ?? headers.host;
    this.body = stream.endAfterHeaders ? null : this.#counted(stream);
    stream.on('trailers', (_trailers: object, _flags: number, rawTrailers: string[]) => {
      this.rawTrailers = rawTrailers;
    });
  }

  get complete(): boolean {
    return this.stream.readableEnded;
  }

  get isDialogue(): boolean {
    return this.headers['content-type']?.startsWith('application/grpc') === true;
  }

  countUnread(): number {
    const before = this.unread;
    this.unread = unreadBytes(this.stream);
    return this.unread - before;
  }

  /**
   * Whether the request may turn out to have no body: its stream did not end with its headers, but nothing else speaks for one.
   * To an upstream that speaks HTTP/1.1, an empty body in chunks is another request than one without a body.
   */
  get mayBeEmpty(): boolean {
    const { method = '', body, headers } = this;
    return body !== null && BODILESS.has(method) && headers['content-length'] === undefined && !this.isDialogue;
  }

  /** Calls back once a body has begun, or the stream has ended without one. */
  whenBegun(done: () => void): void {
    this.#onBegun = done;
    // Starts to read.
    this.stream.read(0);
  }

  /** Node counts the bytes of a connection only, and a listener to `data` would start the stream. */
  #counted(stream: ServerHttp2Stream): ServerHttp2Stream {
    const push = stream.push;
    stream.push = (chunk: Buffer | null, encoding) => {
      this.received += chunk?.length ?? 0;
      const onBegun = this.#onBegun;
      this.#onBegun = null;
      if (onBegun !== null && chunk === null && this.received === 0) this.body = null;
      // A reader that keeps up gets it at once.
      const waits = stream.readableFlowing !== true || stream.readableLength > 0;
      const goOn = push.call(stream, chunk !== null && waits ? this.#withoutRest(chunk) : chunk, encoding);
      if (stream.readableLength > 0) this.onUnread(this.countUnread());
      onBegun?.();
      return goOn;
    };
    return stream;
  }

  /** A copy of a small piece: it would keep up to 64 KiB alive that were read with it. */
  #withoutRest(piece: Buffer): Buffer {
    const { length } = piece;
    if (length * 2 >= piece.buffer.byteLength) return piece;
    if (length > SMALL / 4) return Buffer.allocUnsafeSlow(length).fill(piece);
    // Tiny ones share memory, which a stream's reader frees in the order of arrival.
    if (this.#small.length < length) this.#small = Buffer.allocUnsafeSlow(SMALL);
    const own = this.#small.subarray(0, length);
    this.#small = this.#small.subarray(length);
    piece.copy(own);
    return own;
  }
}

/** Drops a Host header that equals `:authority`; a different one is left for the request guard to reject. */
function rawHeadersOf(authority: string | undefined, raw: readonly string[]): string[] {
  const headers = authority === undefined ? [] : ['host', authority];
  let cookies = '';
  for (let at = 0; at < raw.length; at += 2) {
    const name = nameAt(raw, at);
    const value = valueAt(raw, at);
    if (name.startsWith(':') || (name === 'host' && value === authority)) continue;
    // Clients split cookies, which compresses better (RFC 9113, 8.2.3).
    if (name === 'cookie') cookies = cookies === '' ? value : `${cookies}; ${value}`;
    else headers.push(name, value);
  }
  if (cookies !== '') headers.push('cookie', cookies);
  return headers;
}
