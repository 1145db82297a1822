import { HeadersTooLong } from './headers.ts';

/** Bytes of a block: as many as most pieces have, and few enough to waste for one that is small. */
const BLOCK = 2048;
/** Measured: what a block takes besides its bytes. */
const OVERHEAD = 512;

/**
 * Collects bytes that arrive in pieces of any size, in memory of its own: a piece keeps up to 64 KiB alive that were read with
 * it, many small ones take more for themselves than for their bytes, and joining them at each piece leaves copies behind.
 */
export class ByteBlocks {
  #blocks: Buffer[] = [];
  length = 0;

  /** Bytes of memory that it takes. */
  get held(): number {
    return this.#blocks.length * (BLOCK + OVERHEAD);
  }

  add(bytes: Buffer, from = 0, to = bytes.length): void {
    for (let at = from; at < to; ) {
      const used = this.length % BLOCK;
      if (used === 0) this.#blocks.push(Buffer.allocUnsafeSlow(BLOCK));
      const end = Math.min(to, at + BLOCK - used);
      bytes.copy(this.#blocks.at(-1) as Buffer, used, at, end);
      this.length += end - at;
      at = end;
    }
  }

  joined(): Buffer {
    return Buffer.concat(this.#blocks, this.length);
  }

  clear(): void {
    if (this.length > 0) this.#blocks = [];
    this.length = 0;
  }
}

const END = '\r\n\r\n';

/** Collects a block of headers, in pieces of any size, up to the empty line that ends it. */
export class HeaderBlock {
  /** The text of a complete block: every line has its CR LF, and the empty line is left out. */
  text = '';
  complete = false;
  /** An unfinished block, and its last characters, which may be the start of its end. */
  readonly #bytes = new ByteBlocks();
  #tail = '';

  constructor(private readonly limit: number) {}

  get held(): number {
    return this.#bytes.held;
  }

  get length(): number {
    return this.#bytes.length;
  }

  get begun(): string {
    return this.#bytes.joined().toString('latin1');
  }

  /** @param before text to prepend to the next bytes */
  start(before: string): void {
    this.text = '';
    this.complete = false;
    this.#bytes.clear();
    this.#tail = before;
    if (before !== '') this.#bytes.add(Buffer.from(before, 'latin1'));
  }

  /** Takes the bytes that belong to the block; returns the position after them. @throws {HeadersTooLong} */
  take(bytes: Buffer, at: number): number {
    if (this.#bytes.length === 0) {
      // Usually the whole block arrives at once; the body after it need not be decoded.
      const end = bytes.indexOf(END, at, 'latin1');
      if (end !== -1) {
        this.#check(end - at);
        this.complete = true;
        this.text = bytes.toString('latin1', at, end + 2);
        return end + END.length;
      }
    }
    return this.#append(bytes, at);
  }

  #append(bytes: Buffer, at: number): number {
    const block = this.#bytes;
    const before = block.length;
    const to = Math.min(bytes.length, at + this.limit + END.length);
    const seam = this.#tail + bytes.toString('latin1', at, to);
    const found = seam.indexOf(END);
    const end = found === -1 ? -1 : before - this.#tail.length + found;
    this.#check(end === -1 ? before + to - at : end);
    block.add(bytes, at, to);
    this.#tail = seam.slice(1 - END.length);
    if (end === -1) return to;
    this.complete = true;
    this.text = block.joined().toString('latin1', 0, end + 2);
    block.clear();
    return at + end + END.length - before;
  }

  #check(length: number): void {
    if (length > this.limit) throw new HeadersTooLong();
  }
}
