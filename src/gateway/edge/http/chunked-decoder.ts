import { HeaderBlock } from './header-block.ts';
import { MalformedMessage, parseFields } from './header-fields.ts';

type State = 'size' | 'extension' | 'size-lf' | 'data' | 'data-cr' | 'data-lf' | 'trailers';

/** Digits of a chunk's size: 13 are the most that a number holds exactly. */
const MAX_DIGITS = 13;
/** Bytes of chunk extensions in one body; nobody uses any. */
const MAX_EXTENSIONS = 4096;
/** Headers that say how long a body is. */
const FRAMING = /^(?:content-length|transfer-encoding)$/i;

const CR = 0x0d;
const LF = 0x0a;
const TAB = 0x09;
const SPACE = 0x20;
const SEMICOLON = 0x3b;

/** Takes the chunked transfer coding off a body (RFC 9112, 7.1), one piece at a time. */
export class ChunkedDecoder {
  /** What the last {@link take} found of the body. */
  piece: Buffer | null = null;
  /** Flat name, value list, once the body is complete. */
  trailers: string[] | null = null;
  readonly #block: HeaderBlock;
  readonly #strict: boolean;
  #state: State = 'size';
  #size = 0;
  #digits = 0;
  #extensions = 0;

  /**
   * @param maxTrailerSize in bytes
   * @param strict refuses what no client sends: some old servers pad sizes
   */
  constructor(maxTrailerSize: number, strict = false) {
    this.#block = new HeaderBlock(maxTrailerSize);
    this.#strict = strict;
  }

  /** Begins a body. */
  start(): void {
    this.trailers = null;
    this.#state = 'size';
    this.#size = 0;
    this.#digits = 0;
    this.#extensions = 0;
  }

  /**
   * Reads up to the end of the next piece of the body, of the body, or of the bytes.
   *
   * @returns where in the bytes that was
   * @throws {MalformedMessage} when the bytes are no chunked body
   */
  take(bytes: Buffer, from: number): number {
    this.piece = null;
    for (let at = from; at < bytes.length; at++) {
      if (this.#state === 'data') {
        const end = Math.min(bytes.length, at + this.#size);
        this.piece = bytes.subarray(at, end);
        this.#size -= end - at;
        if (this.#size === 0) this.#state = 'data-cr';
        return end;
      }
      if (this.#state === 'trailers') {
        const end = this.#block.take(bytes, at);
        // Behind the CR LF that was put before it.
        if (this.#block.complete) this.#end(parseFields(this.#block.text, 2));
        return end;
      }
      this.#takeByte(bytes[at] as number);
    }
    return bytes.length;
  }

  #end(trailers: string[]): void {
    if (this.#strict && trailers.some((name, at) => at % 2 === 0 && FRAMING.test(name))) {
      throw new MalformedMessage('a length behind the body');
    }
    this.trailers = trailers;
  }

  #takeByte(byte: number): void {
    switch (this.#state) {
      case 'size':
        this.#takeSize(byte);
        return;
      case 'extension':
        if (byte === CR) this.#state = 'size-lf';
        else if ((byte < SPACE && byte !== TAB) || byte === 0x7f || ++this.#extensions > MAX_EXTENSIONS) {
          throw new MalformedMessage('a malformed or too long chunk extension');
        }
        return;
      case 'size-lf':
        if (byte !== LF) throw new MalformedMessage('a chunk size that ends in a bare CR');
        this.#state = this.#size === 0 ? 'trailers' : 'data';
        // The empty line that ends the trailers may be all there is of them.
        if (this.#size === 0) this.#block.start('\r\n');
        return;
      case 'data-cr':
        if (byte !== CR) throw new MalformedMessage('a chunk longer than its size');
        this.#state = 'data-lf';
        return;
      default:
        if (byte !== LF) throw new MalformedMessage('a chunk that ends in a bare CR');
        this.#state = 'size';
        this.#digits = 0;
    }
  }

  #takeSize(byte: number): void {
    const digit = hexDigit(byte);
    if (digit !== -1 && this.#digits < MAX_DIGITS) {
      this.#size = this.#size * 16 + digit;
      this.#digits += 1;
    } else if (this.#digits === 0 || digit !== -1) {
      throw new MalformedMessage('no valid chunk size');
    } else if (byte === CR) {
      this.#state = 'size-lf';
    } else if (byte === SEMICOLON || (!this.#strict && (byte === SPACE || byte === TAB))) {
      this.#state = 'extension';
    } else {
      throw new MalformedMessage('no valid chunk size');
    }
  }
}

function hexDigit(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}
