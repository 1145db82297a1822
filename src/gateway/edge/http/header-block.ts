import { HeadersTooLong } from './header-fields.ts';

const END = '\r\n\r\n';

/** Collects a block of headers up to the empty line that ends it, which may come in any number of pieces. */
export class HeaderBlock {
  /** What has come so far; once complete every line with its CR LF, without the empty one. */
  text = '';
  complete = false;
  readonly #limit: number;

  /** @param limit bytes that a block may have */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** @param before what goes before the bytes to come */
  start(before: string): void {
    this.text = before;
    this.complete = false;
  }

  /**
   * Takes what belongs to the block.
   *
   * @returns where in the bytes it ended
   * @throws {HeadersTooLong} when the block is too long
   */
  take(bytes: Buffer, at: number): number {
    if (this.text.length === 0) {
      // In most cases all is there at once; the body behind it is not worth decoding.
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
    const to = Math.min(bytes.length, at + this.#limit + END.length);
    const text = this.text + bytes.toString('latin1', at, to);
    const end = text.indexOf(END, Math.max(0, before - END.length + 1));
    this.#check(end === -1 ? text.length : end);
    this.complete = end !== -1;
    this.text = this.complete ? text.slice(0, end + 2) : text;
    return this.complete ? at + end + END.length - before : to;
  }

  #check(length: number): void {
    if (length > this.#limit) throw new HeadersTooLong();
  }
}
