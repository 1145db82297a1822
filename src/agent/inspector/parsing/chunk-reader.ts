import { PendingBytes, type PendingMemory } from './growing-bytes.ts';
import { ParseFailure } from './message-head.ts';

export interface ChunkHandler {
  /** Data from one place in these bytes to another: a view of it would take more time than all else. */
  body(bytes: Buffer, from: number, to: number): void;
}

type State = 'size' | 'extension' | 'data' | 'after-data' | 'trailers';

const LF = 0x0a;
const CR = 0x0d;
const MAX_SIZE_DIGITS = 12;
/** Senders of endless extensions make work without data. */
const MAX_EXTENSION = 4_096;
const MAX_TRAILERS = 8_192;

/** Reads one body in chunked transfer coding. */
export class ChunkReader {
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
    if (this.#digits === 0 || ++this.#extension > MAX_EXTENSION) throw new ParseFailure('invalid chunk size');
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
