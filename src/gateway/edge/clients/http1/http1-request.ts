import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { ByteBlocks } from '../../../../lib/byte-blocks.ts';
import { isName, isPersistent, nameAt, trimSpace, valueAt } from '../../../../lib/http/header-fields.ts';
import { MalformedMessage } from '../../../../lib/http/response-head.ts';
import { clientNetwork } from '../../../../lib/network/ip-address.ts';
import { runInTurn } from '../../../../lib/time/loop-turn.ts';
import type { ChunkedDecoder } from '../../http/chunked-decoder.ts';
import type { ClientHeaders, ClientRequest, Upgrade } from '../../http/client-message.ts';
import { headerLine, MAX_HEADER_LINES, parseFields } from '../../http/headers.ts';
import type { ReceivedRequest } from '../body-progress.ts';
import { unreadBytes } from '../client-memory.ts';

export interface Http1Head {
  readonly method: string;
  readonly target: string;
  readonly version: '1.0' | '1.1';
  /** Flat name, value list as received. */
  readonly rawHeaders: string[];
  readonly headers: ClientHeaders;
  readonly headBytes: number;
  /** Bytes of the body; null with chunked encoding. */
  readonly length: number | null;
  readonly keepAlive: boolean;
  /** The protocol that the client asks to switch to, in a request without a body; null for none. */
  readonly upgrade: string | null;
}

export const NO_HEAD: Http1Head = {
  method: 'GET',
  target: '/',
  version: '1.1',
  rawHeaders: [],
  headers: {},
  headBytes: 0,
  length: 0,
  keepAlive: false,
  upgrade: null,
};

/** Methods in upper case only: servers that ignore case would disagree with others about HEAD and CONNECT. */
const REQUEST_LINE = /^([A-Z][A-Z0-9_-]*) ([\x21-\x7e]+) HTTP\/1\.([01])$/;
const DIGITS = /^\d{1,15}$/;
const UPGRADE = /(?:^|,)[ \t]*upgrade[ \t]*(?:,|$)/i;

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
 * @param text Latin-1, lines with CR LF, without the empty line that ends it @throws {MalformedMessage}
 */
export function parseHttp1Head(text: string): Http1Head {
  const lineEnd = text.indexOf('\r\n');
  const line = REQUEST_LINE.exec(text.slice(0, lineEnd));
  if (line === null) throw new MalformedMessage('invalid request line');
  const [, method = '', target = '', minor] = line;
  const isHttp10 = minor === '0';
  const rawHeaders = parseFields(text, lineEnd + 2);
  const headers = knownOf(rawHeaders, isHttp10);
  const length = lengthOf(headers, isHttp10);
  const version = isHttp10 ? '1.0' : '1.1';
  const keepAlive = isPersistent(headers.connection, isHttp10);
  // Ignored in requests with a body, as any server may: curl --http2 sends both.
  const upgrade = isHttp10 || length !== 0 ? null : upgradeOf(headers);
  return { method, target, version, rawHeaders, headers, headBytes: text.length, length, keepAlive, upgrade };
}

/** Whether a head has more lines than any client sends. Parsing short ones takes many times their memory. */
export function hasTooManyLines(text: string): boolean {
  let end = -2;
  for (let lines = 0; lines <= MAX_HEADER_LINES + 1; lines++) {
    end = text.indexOf('\r\n', end + 2);
    if (end === -1) return false;
  }
  return true;
}

/**
 * A head for the gateway's own services without cookies that pages of neighbours may have set: any number of them, for all names
 * below a domain. Those with the prefix `__Host-` are of the service itself. The connection ends with the response, as the head
 * of the next request would be too long for them.
 */
export function withoutForeignCookies({ method, target, version, rawHeaders }: Http1Head): string {
  let text = `${method} ${target} HTTP/${version}\r\nConnection: close\r\n`;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = nameAt(rawHeaders, at);
    const isCookie = isName(name, 'cookie');
    const value = isCookie ? ownCookies(valueAt(rawHeaders, at)) : valueAt(rawHeaders, at);
    if (isName(name, 'connection') || (isCookie && value === '')) continue;
    text += headerLine(name, value);
  }
  return text;
}

function ownCookies(header: string): string {
  const pairs = header.split(';').map((pair) => trimSpace(pair));
  return pairs.filter((pair) => pair.startsWith('__Host-')).join('; ');
}

function knownOf(raw: readonly string[], isHttp10: boolean): ClientHeaders {
  const known = { ...NO_HEADERS };
  for (let at = 0; at < raw.length; at += 2) {
    const name = nameAt(raw, at).toLowerCase();
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

const NO_TRAILERS: string[] = [];

export class Http1Request implements ClientRequest, ReceivedRequest {
  readonly method: string;
  readonly url: string;
  readonly httpVersion: string;
  readonly headers: Http1Head['headers'];
  readonly rawHeaders: string[];
  readonly headBytes: number;
  readonly body: Readable | null;
  rawTrailers = NO_TRAILERS;
  received = 0;
  /** gRPC is HTTP/2 only. */
  readonly isDialogue = false;
  complete: boolean;
  #left: number;

  /** @param onUnread called when a piece of the body waits for its reader */
  constructor(
    { method, target, version, headers, rawHeaders, headBytes, length }: Http1Head,
    readonly socket: Socket,
    readonly upgrade: Upgrade | null,
    private readonly chunks: ChunkedDecoder | null,
    private readonly onUnread: () => void,
  ) {
    this.method = method;
    this.url = target;
    this.httpVersion = version;
    this.headers = headers;
    this.rawHeaders = rawHeaders;
    this.headBytes = headBytes;
    this.#left = length ?? 0;
    this.complete = length === 0;
    this.body = this.complete ? null : new Readable({ read: () => this.#resume() });
    // The response reports a lost connection.
    this.body?.on('error', () => {});
  }

  get unreadBytes(): number {
    return this.body === null ? 0 : unreadBytes(this.body);
  }

  /** @returns the position after the piece of the body that was taken @throws {MalformedMessage} */
  take(bytes: Buffer, at: number): number {
    if (this.chunks !== null) return this.#takeChunk(this.chunks, bytes, at);
    const end = Math.min(bytes.length, at + this.#left);
    this.#left -= end - at;
    this.#receive(at === 0 && end === bytes.length ? bytes : bytes.subarray(at, end));
    if (this.#left === 0) this.#finish(NO_TRAILERS);
    return end;
  }

  abort(): void {
    this.body?.destroy();
  }

  #takeChunk(chunks: ChunkedDecoder, bytes: Buffer, at: number): number {
    const end = chunks.take(bytes, at);
    if (chunks.piece !== null) this.#receive(chunks.piece);
    if (chunks.trailers !== null) this.#finish(chunks.trailers);
    return end;
  }

  #receive(piece: Buffer): void {
    this.received += piece.length;
    const { body } = this;
    if (body === null) return;
    if (!body.push(piece)) this.socket.pause();
    if (body.readableLength > 0) this.onUnread();
  }

  #finish(trailers: string[]): void {
    this.rawTrailers = trailers;
    this.complete = true;
    this.body?.push(null);
  }

  #resume(): void {
    // After the body there may be another request, which has to wait.
    if (!this.complete) this.socket.resume();
  }
}

/** Bytes of further requests that are read while a response is pending. Reading on shows when the client leaves. */
const MAX_BYTES = 16_384;

/**
 * What a client has sent and the connection cannot process yet: it waits for the response to the current request, for the
 * client to read the last one, or for its turn. Too much of it pauses the socket.
 */
export class PostponedInput {
  readonly #bytes = new ByteBlocks();
  #continues = false;
  /** When there was too much to read on, in milliseconds of `performance.now()`; infinite while there is not. */
  fullSince = Number.POSITIVE_INFINITY;
  readonly #onTurn = (): void => {
    this.#continues = false;
    const bytes = this.#bytes.joined();
    this.#bytes.clear();
    if (this.fullSince < Number.POSITIVE_INFINITY) this.socket.resume();
    this.fullSince = Number.POSITIVE_INFINITY;
    this.process(bytes);
  };

  /** @param process continues with the bytes, in a turn of their own; with none when there was only room to wait for */
  constructor(
    private readonly socket: Socket,
    private readonly process: (bytes: Buffer) => void,
  ) {}

  get length(): number {
    return this.#bytes.length;
  }

  get held(): number {
    return this.#bytes.held;
  }

  add(bytes: Buffer): void {
    this.#bytes.add(bytes);
    if (this.#bytes.length <= MAX_BYTES) return;
    this.fullSince = Math.min(this.fullSince, performance.now());
    this.socket.pause();
  }

  /** Keeps bytes in the socket for another protocol, which may have to see the end of the client's side behind them. */
  leaveInSocket(bytes: Buffer): void {
    this.fullSince = Math.min(this.fullSince, performance.now());
    this.socket.pause().unshift(bytes);
  }

  /** Processes the bytes in a later turn of the event loop, of which a client's network has a share. */
  continue(): void {
    if (this.#continues) return;
    this.#continues = true;
    runInTurn(clientNetwork(this.socket.remoteAddress ?? ''), this.#onTurn);
  }
}
