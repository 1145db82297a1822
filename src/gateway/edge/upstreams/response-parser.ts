import {
  beginningProblem,
  MalformedMessage,
  parseResponseHead,
  type ResponseHead,
} from '../../../lib/http/response-head.ts';
import { ChunkedDecoder } from '../http/chunked-decoder.ts';
import { HeaderBlock } from '../http/headers.ts';

/** Empty lines before a response. */
const MAX_EMPTY = 8;

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
const MAX_INTERIM = 100;

/** Counts the interim responses to a request, which together have at most as many bytes as one head. */
export class InterimCount {
  #responses = 0;
  #bytes = 0;

  constructor(private readonly maxHeaderSize: number) {}

  start(): void {
    this.#responses = 0;
    this.#bytes = 0;
  }

  /** @throws {MalformedMessage} when there are too many, or they are too long */
  add({ headers }: ResponseHead): void {
    this.#responses += 1;
    for (const text of headers) this.#bytes += text.length;
    if (this.#responses > MAX_INTERIM || this.#bytes > this.maxHeaderSize) {
      throw new MalformedMessage('more than 100 interim responses (1xx) precede it, or too long ones');
    }
  }
}

/** Bytes of an unfinished head that are checked piece by piece. */
const CHECKED = 1024;
const NO_TRAILERS: string[] = [];
const EMPTY_LINES = /^[\r\n]*$/;

/**
 * Parses the responses on one connection, and repairs what many devices get wrong ({@link parseResponseHead}): an upstream
 * belongs to its tunnel's owner, and what is written to clients is strict. Bytes may arrive in pieces of any size. Bodies are
 * passed on without copying; only one block of headers is buffered.
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
  readonly #interim: InterimCount;
  #emptyLines = 0;
  #started = false;

  constructor(private readonly maxHeaderSize: number) {
    this.#block = new HeaderBlock(maxHeaderSize, true);
    this.#interim = new InterimCount(maxHeaderSize);
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
    this.#interim.start();
    this.#emptyLines = 0;
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
    // With the last chunk, the body is complete (RFC 9112, 8).
    if (this.#state !== 'close' && !(this.#state === 'chunked' && this.#chunks?.isWhole)) return false;
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
      if (!EMPTY_LINES.test(text)) this.#headOf(parseResponseHead(text));
      else if (++this.#emptyLines > MAX_EMPTY) throw new MalformedMessage('it begins with empty lines');
    }
    const problem = isBeginning && block.length > 0 ? beginningProblem(block.begun) : null;
    if (problem !== null) throw new MalformedMessage(problem);
    return next;
  }

  #headOf(head: ResponseHead): void {
    const { status } = head;
    if (status === 101) {
      if (!this.#upgrade) throw new MalformedMessage('its status is 101, which the request has not asked for');
      this.#state = 'upgraded';
      this.head = head;
      return;
    }
    if (status < 200) {
      this.#interim.add(head);
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
