import { ChunkedDecoder } from '../http/chunked-decoder.ts';
import { HeaderBlock } from '../http/header-block.ts';
import { MalformedMessage } from '../http/header-fields.ts';
import { cannotBecomeHead, parseResponseHead, type ResponseHead } from '../http/response-head.ts';

/** Receives what a {@link ResponseParser} finds. */
export interface ResponseEvents {
  /** An interim response: 1xx except 101. */
  onInterim(head: ResponseHead): void;
  onHead(head: ResponseHead): void;
  /** A piece of the body, decoded and never empty. */
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
  /** The head of the current response, or of the last one. */
  head: ResponseHead | null = null;
  #events: ResponseEvents | null = null;
  readonly #block: HeaderBlock;
  readonly #chunks: ChunkedDecoder;
  #state: State = 'idle';
  #bodyless = false;
  #upgrade = false;
  #left = 0;
  #interim = 0;
  #started = false;

  /** @param maxHeaderSize bytes of a head, and of the trailers */
  constructor(maxHeaderSize: number) {
    this.#block = new HeaderBlock(maxHeaderSize);
    this.#chunks = new ChunkedDecoder(maxHeaderSize);
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
    return this.#block.held + this.#chunks.held;
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

  /**
   * Takes the next bytes.
   *
   * @returns how many of them belong to the response
   * @throws {MalformedMessage} when they are no valid response; the connection is unusable then
   */
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
    if (this.#bodyless) {
      this.#state = 'length';
      this.#left = 0;
    } else {
      this.#state = head.framing;
      this.#left = head.length;
      if (head.framing === 'chunked') this.#chunks.start();
    }
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
    const next = this.#chunks.take(bytes, at);
    const { piece, trailers } = this.#chunks;
    if (piece !== null) this.#events?.onBody(piece);
    if (trailers !== null && this.#state === 'chunked') this.#complete(trailers);
    return next;
  }

  #complete(trailers: string[]): void {
    const events = this.#events;
    this.stop();
    events?.onComplete(trailers);
  }
}
