import { ChunkedDecoder } from '../http/chunked-decoder.ts';
import { HeaderBlock } from '../http/header-block.ts';
import { MalformedMessage } from '../http/header-fields.ts';
import { cannotBecomeHead, parseResponseHead, type ResponseHead } from '../http/response-head.ts';

/** What a {@link ResponseParser} finds. */
export interface ResponseEvents {
  /** An interim response: 1xx but for 101. */
  onInterim(head: ResponseHead): void;
  onHead(head: ResponseHead): void;
  /** A piece of the body, without its encoding; never empty. */
  onBody(piece: Buffer): void;
  /** @param trailers flat name, value list */
  onComplete(trailers: string[]): void;
}

type State = 'idle' | 'head' | 'length' | 'chunked' | 'close' | 'upgraded';

/** Interim responses to one request; a server that reports its progress sends one now and then. */
export const MAX_INTERIM = 100;
const NO_TRAILERS: string[] = [];

/**
 * Reads the responses on one connection, strictly: what two readers could take for different messages is refused.
 * Bytes may come in pieces of any size; a body is handed on uncopied, and no more is kept than one block of headers.
 */
export class ResponseParser {
  /** The head of the present response, or of the last one. */
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

  /** Whether no response is expected: none was asked for, or it is complete. */
  get idle(): boolean {
    return this.#state === 'idle';
  }

  /** Whether the head of a response has yet to come. */
  get awaitsHead(): boolean {
    return this.#state === 'head';
  }

  /** Whether the connection speaks another protocol from here on. */
  get upgraded(): boolean {
    return this.#state === 'upgraded';
  }

  /** Whether anything of the present response has arrived. */
  get started(): boolean {
    return this.#started;
  }

  /** A request goes out; what comes next is its response. */
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

  /** Nothing more is read nor told, even of what was passed to {@link push} already. */
  stop(): void {
    this.#state = 'idle';
    this.#events = null;
  }

  /**
   * Takes the next bytes.
   *
   * @returns how many of them belong to the response; fewer than there are when it ends before them
   * @throws {MalformedMessage} when they cannot be part of a response; the connection is of no use afterwards
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

  /**
   * The upstream sends no more.
   *
   * @returns whether that completes the response
   */
  end(): boolean {
    if (this.#state !== 'close') return false;
    this.#complete(NO_TRAILERS);
    return true;
  }

  #takeHead(bytes: Buffer, at: number): number {
    const next = this.#block.take(bytes, at);
    const { text } = this.#block;
    if (this.#block.complete) this.#headOf(parseResponseHead(text));
    else if (cannotBecomeHead(text)) throw new MalformedMessage('this is not HTTP');
    return next;
  }

  #headOf(head: ResponseHead): void {
    const { status } = head;
    if (status === 101) {
      if (!this.#upgrade) throw new MalformedMessage('another protocol, unasked');
      this.#state = 'upgraded';
      this.head = head;
      return;
    }
    if (status < 200) {
      if (++this.#interim > MAX_INTERIM) throw new MalformedMessage('too many interim responses');
      this.#block.start('');
      this.#events?.onInterim(head);
      return;
    }
    this.head = head;
    if (this.#bodyless || status === 204 || status === 304) {
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
