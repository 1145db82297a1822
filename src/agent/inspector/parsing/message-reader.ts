import { PendingBytes, type PendingMemory } from './growing-bytes.ts';
import { type Following, ParseFailure } from './message-head.ts';

export interface MessageHandler extends ChunkHandler {
  /** A head arrived, without the empty line at its end. */
  head(text: string): Following;
  /** The message has ended. */
  end(trailers: string): void;
  /** Data of another protocol, after an upgrade. */
  raw(bytes: Buffer): void;
}

const LF = 0x0a;
const CR = 0x0d;
const TAB = 0x09;
const SPACE = 0x20;
const SEMICOLON = 0x3b;
/** Bytes before the last one of what ends a head. */
const HEAD_END = '\n\r'.length;
const MAX_HEAD = 64 * 1024;

/** Reads the messages of HTTP/1.1 that pass in one direction of a connection. */
export class MessageReader {
  #following: Following | null = null;
  #left = 0;
  #chunks: ChunkReader | null = null;
  readonly #head: PendingBytes;

  constructor(
    private readonly handler: MessageHandler,
    private readonly memory: PendingMemory,
  ) {
    this.#head = new PendingBytes(MAX_HEAD, memory);
  }

  /** A head that has begun to arrive, but is not whole; one byte a character. */
  get partialHead(): string {
    return this.#head.bytes.toString('latin1');
  }

  /** @throws {ParseFailure} for what is not HTTP/1.1; afterwards it must not be called again */
  read(bytes: Buffer): void {
    let at = 0;
    while (at < bytes.length) at = this.#following === null ? this.#readHead(bytes, at) : this.#readBody(bytes, at);
  }

  /** The direction has ended in order: so do a body without a length, and one in chunks whose last one has arrived. */
  finish(): void {
    if (this.#following === 'until-end' || this.#chunks?.isWhole) this.#end('');
  }

  /** From the next message on, another protocol follows. */
  becomeRaw(): void {
    const early = Buffer.from(this.#head.bytes);
    this.#head.clear();
    this.#chunks = null;
    this.#following = 'raw';
    if (early.length > 0) this.handler.raw(early);
  }

  /** Gives back the memory of what will not end. */
  release(): void {
    this.#head.clear();
    this.#chunks?.release();
  }

  #readHead(bytes: Buffer, start: number): number {
    let at = start;
    // Some senders end a body with an empty line that its length does not count.
    if (this.#head.length === 0) while (bytes[at] === CR || bytes[at] === LF) at++;
    if (at === bytes.length) return at;
    const before = this.#head.length;
    if (before === 0) {
      const end = endOfHead(bytes, at);
      if (end !== -1) {
        this.#takeHead(bytes, at, end);
        return pastEmptyLine(bytes, end);
      }
    }
    if (!this.#head.append(bytes.subarray(at))) return this.#lastPartOfHead(bytes, at);
    const whole = this.#head.bytes;
    const end = endOfHead(whole, Math.max(0, before - HEAD_END));
    if (end === -1) return bytes.length;
    this.#head.clear();
    this.#takeHead(whole, 0, end);
    return at + pastEmptyLine(whole, end) - before;
  }

  /** What follows the head may be large, and the reason that all of it does not fit. */
  #lastPartOfHead(bytes: Buffer, at: number): number {
    const part = bytes.subarray(at, at + MAX_HEAD - this.#head.length);
    const joined = Buffer.concat([this.#head.bytes, part]);
    const before = this.#head.length;
    const end = endOfHead(joined, Math.max(0, before - HEAD_END));
    if (end === -1 && joined.length === MAX_HEAD) {
      throw new ParseFailure(`its header is longer than ${MAX_HEAD / 1024} KiB`);
    }
    if (end === -1) throw new ParseFailure('too many connections with an unfinished header');
    this.#head.clear();
    this.#takeHead(joined, 0, end);
    return at + pastEmptyLine(joined, end) - before;
  }

  /** @param end where the empty line begins */
  #takeHead(bytes: Buffer, start: number, end: number): void {
    const following = this.handler.head(bytes.toString('latin1', start, bytes[end - 2] === CR ? end - 2 : end - 1));
    if (following === 'head') return;
    if (following === 0) {
      this.handler.end('');
      return;
    }
    this.#following = following;
    if (following === 'chunks') this.#chunks = new ChunkReader(this.handler, this.memory);
    else if (typeof following === 'number') this.#left = following;
  }

  #readBody(bytes: Buffer, at: number): number {
    if (this.#chunks) {
      const end = this.#chunks.read(bytes, at);
      if (end === -1) return bytes.length;
      this.#end(this.#chunks.takeTrailers());
      return end;
    }
    if (this.#following === 'raw') {
      this.handler.raw(at === 0 ? bytes : bytes.subarray(at));
      return bytes.length;
    }
    if (this.#following === 'until-end') {
      this.handler.body(bytes, at, bytes.length);
      return bytes.length;
    }
    const end = Math.min(bytes.length, at + this.#left);
    this.#left -= end - at;
    this.handler.body(bytes, at, end);
    if (this.#left === 0) this.#end('');
    return end;
  }

  #end(trailers: string): void {
    this.#following = null;
    this.#chunks = null;
    this.handler.end(trailers);
  }
}

/** Where the empty line begins that ends a head; -1 when there is none yet. Some senders leave out carriage returns. */
function endOfHead(bytes: Buffer, from: number): number {
  for (let at = from + 1; at < bytes.length; at++) {
    if (bytes[at - 1] !== LF) continue;
    if (bytes[at] === LF || (bytes[at] === CR && bytes[at + 1] === LF)) return at;
  }
  return -1;
}

function pastEmptyLine(bytes: Buffer, at: number): number {
  return at + (bytes[at] === CR ? 2 : 1);
}

interface ChunkHandler {
  /** Data from one place in these bytes to another: a view of it would take more time than all else. */
  body(bytes: Buffer, from: number, to: number): void;
}

type State = 'size' | 'extension' | 'data' | 'after-data' | 'trailers';

const MAX_SIZE_DIGITS = 12;
/** Senders of endless extensions make work without data. */
const MAX_EXTENSION = 4_096;
const MAX_TRAILERS = 8_192;

/** Reads one body in chunked transfer coding. */
class ChunkReader {
  #state: State = 'size';
  #digits = 0;
  #size = 0;
  #extension = 0;
  /** Bytes in the present line of the trailers. */
  #line = 0;
  readonly #trailers: PendingBytes;

  constructor(
    private readonly handler: ChunkHandler,
    memory: PendingMemory,
  ) {
    this.#trailers = new PendingBytes(MAX_TRAILERS, memory);
  }

  /** Whether the last chunk has arrived: only trailers may follow. */
  get isWhole(): boolean {
    return this.#state === 'trailers';
  }

  /** The trailers, once {@link read} has ended. */
  takeTrailers(): string {
    const text = this.#trailers.bytes.toString('latin1');
    this.#trailers.clear();
    return text;
  }

  /** Gives back what it holds of a body that will not end. */
  release(): void {
    this.#trailers.clear();
  }

  /**
   * Reads on.
   *
   * @returns where the body ends in these bytes; -1 when it goes on
   * @throws {ParseFailure}
   */
  read(bytes: Buffer, start: number): number {
    let at = start;
    while (at < bytes.length) {
      if (this.#state === 'data') {
        const end = Math.min(bytes.length, at + this.#size);
        this.handler.body(bytes, at, end);
        this.#size -= end - at;
        at = end;
        if (this.#size === 0) this.#state = 'after-data';
        continue;
      }
      const byte = bytes[at++] as number;
      if (this.#state === 'trailers') {
        if (this.#trailer(bytes, byte, at)) return at;
      } else this.#control(byte);
    }
    return -1;
  }

  #control(byte: number): void {
    if (this.#state === 'after-data') {
      if (byte === LF) this.#state = 'size';
      else if (byte !== CR) throw new ParseFailure('invalid chunk');
      return;
    }
    if (byte === LF) {
      this.#sizeEnds();
      return;
    }
    const digit = this.#state === 'size' ? hexDigit(byte) : -1;
    if (digit >= 0) {
      if (++this.#digits > MAX_SIZE_DIGITS) throw new ParseFailure('invalid chunk size');
      this.#size = this.#size * 16 + digit;
      return;
    }
    const ends = this.#state === 'extension' || byte === SEMICOLON || byte === CR || byte === SPACE || byte === TAB;
    if (this.#digits === 0 || !ends || ++this.#extension > MAX_EXTENSION) throw new ParseFailure('invalid chunk size');
    this.#state = 'extension';
  }

  #sizeEnds(): void {
    if (this.#digits === 0) throw new ParseFailure('invalid chunk size');
    this.#digits = 0;
    this.#extension = 0;
    this.#state = this.#size === 0 ? 'trailers' : 'data';
  }

  /** @returns whether they have ended, with an empty line */
  #trailer(bytes: Buffer, byte: number, at: number): boolean {
    if (byte === LF && this.#line === 0) return true;
    if (byte === LF) this.#line = 0;
    else if (byte !== CR) this.#line++;
    if (!this.#trailers.append(bytes.subarray(at - 1, at))) throw new ParseFailure('trailers are too large');
    return false;
  }
}

function hexDigit(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const letter = byte | 0x20;
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : -1;
}
