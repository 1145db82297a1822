import { ByteBlocks } from '../../../lib/byte-blocks.ts';
import { HeadersTooLong } from './headers.ts';

const END = '\r\n\r\n';
const LENIENT_END = /\n\r?\n/;

/** Collects a block of headers, in pieces of any size, up to the empty line that ends it. */
export class HeaderBlock {
  /** The text of a complete block: every line has its end, and the empty line is left out. */
  text = '';
  complete = false;
  /** An unfinished block, and its last characters, which may be the start of its end. */
  readonly #bytes = new ByteBlocks();
  #tail = '';

  /** @param lenient whether lines may end in LF alone (RFC 9112, 2.2) */
  constructor(
    private readonly limit: number,
    private readonly lenient = false,
  ) {}

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
        const earlier = this.lenient ? LENIENT_END.exec(this.text) : null;
        if (earlier === null) return end + END.length;
        this.text = this.text.slice(0, earlier.index + 1);
        return at + earlier.index + earlier[0].length;
      }
    }
    return this.#append(bytes, at);
  }

  #append(bytes: Buffer, at: number): number {
    const block = this.#bytes;
    const before = block.length;
    const to = Math.min(bytes.length, at + this.limit + END.length);
    const seam = this.#tail + bytes.toString('latin1', at, to);
    const found = this.#endIn(seam);
    const end = found === null ? -1 : before - this.#tail.length + found.from;
    this.#check(end === -1 ? before + to - at : end - 2);
    block.add(bytes, at, to);
    this.#tail = seam.slice(1 - END.length);
    if (end === -1) return to;
    this.complete = true;
    this.text = block.joined().toString('latin1', 0, end);
    block.clear();
    return at + end + (found?.length ?? 0) - before;
  }

  /** Where the text of the block ends, and how many characters of the empty line follow. */
  #endIn(text: string): { from: number; length: number } | null {
    if (!this.lenient) {
      const at = text.indexOf(END);
      return at === -1 ? null : { from: at + 2, length: 2 };
    }
    const end = LENIENT_END.exec(text);
    return end === null ? null : { from: end.index + 1, length: end[0].length - 1 };
  }

  #check(length: number): void {
    if (length > this.limit) throw new HeadersTooLong(this.limit);
  }
}
