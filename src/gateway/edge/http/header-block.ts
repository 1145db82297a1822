import { ByteBlocks } from './byte-blocks.ts';
import { HeadersTooLong } from './header-fields.ts';

const END = '\r\n\r\n';

/** Collects a block of headers, in pieces of any size, up to the empty line that ends it. */
export class HeaderBlock {
  /** The text of a complete block: every line has its CR LF, and the empty line is left out. */
  text = '';
  complete = false;
  /** An unfinished block, and its last characters, which may be the start of its end. */
  readonly #bytes = new ByteBlocks();
  #tail = '';

  /** @param limit in bytes */
  constructor(private readonly limit: number) {}

  /** Bytes of memory that an unfinished block takes. */
  get held(): number {
    return this.#bytes.held;
  }

  /** Bytes of an unfinished block. */
  get length(): number {
    return this.#bytes.length;
  }

  /** The text of an unfinished block. */
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

  /**
   * Takes the bytes that belong to the block.
   *
   * @returns the position in the bytes after them
   * @throws {HeadersTooLong} when the block is too long
   */
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
