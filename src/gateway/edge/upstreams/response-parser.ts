import { nameAt, valueAt } from '../../../lib/http/header-fields.ts';
import { ChunkedDecoder } from '../http/chunked-decoder.ts';
import { HeaderBlock } from '../http/header-block.ts';
import { isName, isPersistent, MalformedMessage, parseFields } from '../http/headers.ts';

/** How the body of a response is delimited (RFC 9112, 6.3). */
type Framing = 'length' | 'chunked' | 'close';

export interface ResponseHead {
  readonly status: number;
  readonly reason: string;
  /** Flat name, value list as received. */
  readonly headers: string[];
  readonly framing: Framing;
  /** Bytes of the body when the framing is `length`. */
  readonly length: number;
  /** Whether the upstream accepts another request on the connection. */
  readonly keepAlive: boolean;
  /** Seconds that the upstream keeps an idle connection open; null when unknown. */
  readonly keepAliveSeconds: number | null;
  /** Value of the Connection header, joined when it is repeated. */
  readonly connection: string | undefined;
}

/** Other statuses than 1xx to 5xx are invalid (RFC 9110, 15), and Node cannot send them with HTTP/2. */
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-5]\d\d)(?: ([\t\x20-\x7e\x80-\xff]*))?$/;
const STATUS_START = 'HTTP/1.';
/** Text without control characters. CR and LF are valid as a pair only: lone ones enable response splitting. */
const CLEAN = /^[\t\x20-\x7e\x80-\xff]*(?:\r\n[\t\x20-\x7e\x80-\xff]*)*$/;
const DIGITS = /^\d{1,15}$/;
const IDLE_SECONDS = /(?:^|[, \t])timeout=(\d{1,9})(?:[, \t]|$)/i;

/** @param text Latin-1, lines with CR LF, without the empty line that ends it @throws {MalformedMessage} */
function parseResponseHead(text: string): ResponseHead {
  const lineEnd = text.indexOf('\r\n');
  const line = STATUS_LINE.exec(text.slice(0, lineEnd));
  if (line === null) throw new MalformedMessage('invalid status line');
  return headOf(Number(line[2]), line[3] ?? '', line[1] === '0', parseFields(text, lineEnd + 2));
}

/** Whether the beginning of a head cannot become a valid one: finds most faults early. A complete head is checked in full. */
function cannotBecomeHead(text: string): boolean {
  if (!(text.startsWith(STATUS_START) || STATUS_START.startsWith(text))) return true;
  // The LF after a final CR may still arrive.
  return !CLEAN.test(text.endsWith('\r') ? text.slice(0, -1) : text);
}

function headOf(status: number, reason: string, isHttp10: boolean, headers: string[]): ResponseHead {
  let length: string | undefined;
  let encoding: string | undefined;
  let connection: string | undefined;
  let keepAlive: string | undefined;
  for (let at = 0; at < headers.length; at += 2) {
    const name = nameAt(headers, at);
    const value = valueAt(headers, at);
    if (isName(name, 'connection')) connection = connection === undefined ? value : `${connection}, ${value}`;
    else if (isName(name, 'keep-alive')) keepAlive = value;
    else if (isName(name, 'content-length')) {
      if (length !== undefined || !DIGITS.test(value)) throw new MalformedMessage('invalid content-length');
      length = value;
    } else if (isName(name, 'transfer-encoding')) {
      if (encoding !== undefined || isHttp10)
        throw new MalformedMessage('repeated transfer-encoding, or one in HTTP/1.0');
      encoding = value;
    }
  }
  if (encoding !== undefined && encoding.toLowerCase() !== 'chunked') {
    throw new MalformedMessage('unsupported transfer-encoding');
  }
  if (encoding !== undefined && length !== undefined)
    throw new MalformedMessage('both content-length and transfer-encoding');
  const framing = encoding !== undefined ? 'chunked' : length !== undefined ? 'length' : 'close';
  const idle = keepAlive === undefined ? null : IDLE_SECONDS.exec(keepAlive);
  const reuse = { keepAlive: isPersistent(connection, isHttp10), keepAliveSeconds: idle && Number(idle[1]) };
  return { status, reason, headers, connection, framing, length: Number(length ?? 0), ...reuse };
}

export interface ResponseEvents {
  /** An interim response: 1xx except 101. */
  onInterim(head: ResponseHead): void;
  onHead(head: ResponseHead): void;
  onBody(piece: Buffer): void;
  /** @param trailers flat name, value list */
  onComplete(trailers: string[]): void;
}

type State = 'idle' | 'head' | 'length' | 'chunked' | 'close' | 'upgraded';

/** Interim responses to one request; servers use them to report progress. */
export const MAX_INTERIM = 100;
/** Bytes of an unfinished head that are checked piece by piece. */
const CHECKED = 1024;
const NO_TRAILERS: string[] = [];

/**
 * Parses the responses on one connection strictly: rejects everything that another reader could read differently. Bytes may
 * arrive in pieces of any size. Bodies are passed on without copying; only one block of headers is buffered.
 */
export class ResponseParser {
  head: ResponseHead | null = null;
  #events: ResponseEvents | null = null;
  readonly #block: HeaderBlock;
  #chunks: ChunkedDecoder | null = null;
  #state: State = 'idle';
  #bodyless = false;
  #upgrade = false;
  #left = 0;
  #interim = 0;
  #started = false;

  constructor(private readonly maxHeaderSize: number) {
    this.#block = new HeaderBlock(maxHeaderSize);
  }

  /** Whether no response is expected, or it is complete. */
  get idle(): boolean {
    return this.#state === 'idle';
  }

  get awaitsHead(): boolean {
    return this.#state === 'head';
  }

  /** Whether the connection has switched to another protocol. */
  get upgraded(): boolean {
    return this.#state === 'upgraded';
  }

  /** Whether any byte of the current response has arrived. */
  get started(): boolean {
    return this.#started;
  }

  /** Whether the current response, or the last one, has no body whatever its headers say. */
  get bodyless(): boolean {
    return this.#bodyless;
  }

  /** Bytes of memory that an unfinished head or unfinished trailers take. */
  get held(): number {
    return this.#block.held + (this.#chunks?.held ?? 0);
  }

  expect(request: { method: string; upgrade: boolean }, events: ResponseEvents): void {
    this.#events = events;
    this.#state = 'head';
    this.head = null;
    this.#bodyless = request.method === 'HEAD';
    this.#upgrade = request.upgrade;
    this.#interim = 0;
    this.#started = false;
    this.#block.start('');
  }

  /** Stops parsing and reporting, even of bytes already passed to {@link push}. */
  stop(): void {
    this.#state = 'idle';
    this.#events = null;
  }

  /** @returns how many bytes belong to the response @throws {MalformedMessage} the connection is unusable then */
  push(bytes: Buffer): number {
    let at = 0;
    this.#started = true;
    while (at < bytes.length) {
      switch (this.#state) {
        case 'head':
          at = this.#takeHead(bytes, at);
          break;
        case 'length':
          at = this.#takeCounted(bytes, at);
          break;
        case 'chunked':
          at = this.#takeChunked(bytes, at);
          break;
        case 'close':
          this.#events?.onBody(at === 0 ? bytes : bytes.subarray(at));
          return bytes.length;
        default:
          return at;
      }
    }
    return at;
  }

  /** Takes the end of the connection; returns whether it completes the response. */
  end(): boolean {
    if (this.#state !== 'close') return false;
    this.#complete(NO_TRAILERS);
    return true;
  }

  #takeHead(bytes: Buffer, at: number): number {
    const block = this.#block;
    const isBeginning = block.length < CHECKED;
    const next = block.take(bytes, at);
    if (block.complete) {
      const { text } = block;
      block.start('');
      this.#headOf(parseResponseHead(text));
    } else if (isBeginning && cannotBecomeHead(block.begun)) throw new MalformedMessage('not HTTP');
    return next;
  }

  #headOf(head: ResponseHead): void {
    const { status } = head;
    if (status === 101) {
      if (!this.#upgrade) throw new MalformedMessage('unexpected 101 response');
      this.#state = 'upgraded';
      this.head = head;
      return;
    }
    if (status < 200) {
      if (++this.#interim > MAX_INTERIM) throw new MalformedMessage('too many interim responses');
      this.#events?.onInterim(head);
      return;
    }
    this.head = head;
    this.#bodyless ||= status === 204 || status === 304;
    this.#state = this.#bodyless ? 'length' : head.framing;
    this.#left = this.#bodyless ? 0 : head.length;
    if (this.#state === 'chunked') this.#decoder().start();
    this.#events?.onHead(head);
    if (this.#state === 'length' && this.#left === 0) this.#complete(NO_TRAILERS);
  }

  #takeCounted(bytes: Buffer, at: number): number {
    const end = Math.min(bytes.length, at + this.#left);
    this.#left -= end - at;
    this.#events?.onBody(at === 0 && end === bytes.length ? bytes : bytes.subarray(at, end));
    if (this.#left === 0 && this.#state === 'length') this.#complete(NO_TRAILERS);
    return end;
  }

  #takeChunked(bytes: Buffer, at: number): number {
    const chunks = this.#decoder();
    const next = chunks.take(bytes, at);
    const { piece, trailers } = chunks;
    if (piece !== null) this.#events?.onBody(piece);
    if (trailers !== null && this.#state === 'chunked') this.#complete(trailers);
    return next;
  }

  #decoder(): ChunkedDecoder {
    this.#chunks ??= new ChunkedDecoder(this.maxHeaderSize);
    return this.#chunks;
  }

  #complete(trailers: string[]): void {
    const events = this.#events;
    this.stop();
    events?.onComplete(trailers);
  }
}
