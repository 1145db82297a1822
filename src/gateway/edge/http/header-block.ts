import { HeadersTooLong } from './header-fields.ts';

const END = '\r\n\r\n';

/** Collects a block of headers, in pieces of any size, up to the empty line that ends it. */
export class HeaderBlock {
  /** The text so far. Once complete, every line has its CR LF, and the empty line is left out. */
  text = '';
  complete = false;

  /** @param limit in bytes */
  constructor(private readonly limit: number) {}

  /** @param before text to prepend to the next bytes */
  start(before: string): void {
    this.text = before;
    this.complete = false;
  }

  /**
   * Takes the bytes that belong to the block.
   *
   * @returns the position in the bytes after them
   * @throws {HeadersTooLong} when the block is too long
   */
  take(bytes: Buffer, at: number): number {
    if (this.text.length === 0) {
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
    const before = this.text.length;
    const to = Math.min(bytes.length, at + this.limit + END.length);
    const text = this.text + bytes.toString('latin1', at, to);
    const end = text.indexOf(END, Math.max(0, before - END.length + 1));
    this.#check(end === -1 ? text.length : end);
    this.complete = end !== -1;
    this.text = this.complete ? text.slice(0, end + 2) : text;
    return this.complete ? at + end + END.length - before : to;
  }

  #check(length: number): void {
    if (length > this.limit) throw new HeadersTooLong();
  }
}
