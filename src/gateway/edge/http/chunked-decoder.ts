import { cleanFields } from '../../../lib/http/header-fields.ts';
import { MalformedMessage } from '../../../lib/http/response-head.ts';
import { HeaderBlock, parseFields } from './headers.ts';

type State = 'size' | 'extension' | 'size-lf' | 'data' | 'data-cr' | 'data-lf' | 'trailers';

/** Hexadecimal digits of a chunk's size: a number holds no more exactly. */
const MAX_DIGITS = 13;
/** Bytes of chunk extensions in one body; they are practically unused. */
const MAX_EXTENSIONS = 4096;
/** Bytes of a chunk that is joined with others which have arrived with it. */
const SMALL = 1024;
const FRAMING = /^(?:content-length|transfer-encoding)$/i;

const CR = 0x0d;
const LF = 0x0a;
const TAB = 0x09;
const SPACE = 0x20;
const SEMICOLON = 0x3b;

/** Decodes the chunked transfer coding of a body (RFC 9112, 7.1), one piece at a time. */
export class ChunkedDecoder {
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
   * @param strict for requests: rejects what only servers of some devices send, padded sizes and lines that end in LF alone, and
   * framing headers in trailers
   */
  constructor(maxTrailerSize: number, strict = false) {
    this.#block = new HeaderBlock(maxTrailerSize, !strict);
    this.#strict = strict;
  }

  get held(): number {
    return this.#block.held;
  }

  /** Whether the last chunk has arrived: only trailers may follow. */
  get isWhole(): boolean {
    return this.#state === 'trailers';
  }

  start(): void {
    this.trailers = null;
    this.#state = 'size';
    this.#size = 0;
    this.#digits = 0;
    this.#extensions = 0;
  }

  /**
   * Reads up to the end of the next piece, the body or the bytes; returns the position after. Small chunks are joined: each
   * piece that is passed on costs much more than its bytes.
   *
   * @throws {MalformedMessage}
   */
  take(bytes: Buffer, from: number): number {
    this.piece = null;
    let joined: Buffer | null = null;
    let length = 0;
    for (let at = from; at < bytes.length; at++) {
      if (this.#state === 'data') {
        const end = Math.min(bytes.length, at + this.#size);
        if (end - at > SMALL && this.piece !== null) return at;
        this.#size -= end - at;
        if (this.#size === 0) this.#state = 'data-cr';
        if (this.piece === null) this.piece = bytes.subarray(at, end);
        else {
          joined ??= this.#roomFor(this.piece, bytes.length - at);
          length ||= this.piece.length;
          length += bytes.copy(joined, length, at, end);
          this.piece = joined.subarray(0, length);
        }
        if (end - at > SMALL) return end;
        at = end - 1;
      } else if (this.#state === 'trailers') {
        if (this.piece !== null) return at;
        const end = this.#block.take(bytes, at);
        // The block starts with a CR LF of our own.
        if (this.#block.complete) this.#end(this.#block.text);
        return end;
      } else this.#takeByte(bytes[at] as number);
    }
    return bytes.length;
  }

  #roomFor(first: Buffer, more: number): Buffer {
    const room = Buffer.allocUnsafe(first.length + more);
    first.copy(room);
    return room;
  }

  #end(text: string): void {
    // Lenient: trailers are optional, so that malformed ones are left out.
    const trailers = this.#strict ? parseFields(text, 2) : (cleanFields(text, 2) ?? []);
    if (this.#strict && trailers.some((name, at) => at % 2 === 0 && FRAMING.test(name))) {
      throw new MalformedMessage('content-length or transfer-encoding in the trailers');
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
        else if (byte === LF && !this.#strict) this.#sizeEnded();
        else if ((byte < SPACE && byte !== TAB) || byte === 0x7f || ++this.#extensions > MAX_EXTENSIONS) {
          throw new MalformedMessage('the extension of a chunk is malformed or too long');
        }
        return;
      case 'size-lf':
        if (byte !== LF) throw new MalformedMessage('the size of a chunk ends in a bare CR');
        this.#sizeEnded();
        return;
      case 'data-cr':
        if (byte === LF && !this.#strict) this.#dataEnded();
        else if (byte !== CR) throw new MalformedMessage('a chunk is longer than its size');
        else this.#state = 'data-lf';
        return;
      default:
        if (byte !== LF) throw new MalformedMessage('a chunk ends in a bare CR');
        this.#dataEnded();
    }
  }

  #sizeEnded(): void {
    this.#state = this.#size === 0 ? 'trailers' : 'data';
    // There may be no trailers at all, just the empty line that ends them.
    if (this.#size === 0) this.#block.start('\r\n');
  }

  #dataEnded(): void {
    this.#state = 'size';
    this.#digits = 0;
  }

  #takeSize(byte: number): void {
    const digit = hexDigit(byte);
    if (digit !== -1 && this.#digits < MAX_DIGITS) {
      this.#size = this.#size * 16 + digit;
      this.#digits += 1;
    } else if (this.#digits === 0 || digit !== -1) {
      throw new MalformedMessage('the size of a chunk is not a number');
    } else if (byte === CR) {
      this.#state = 'size-lf';
    } else if (byte === LF && !this.#strict) {
      this.#sizeEnded();
    } else if (byte === SEMICOLON || (!this.#strict && (byte === SPACE || byte === TAB))) {
      this.#state = 'extension';
    } else {
      throw new MalformedMessage('the size of a chunk is not a number');
    }
  }
}

function hexDigit(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}
