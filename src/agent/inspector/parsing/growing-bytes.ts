const EMPTY = Buffer.alloc(0);

/** Copies of bytes in one piece, up to a limit. A slice would keep the whole chunk of the network that it is part of. */
export class GrowingBytes {
  #buffer = EMPTY;
  #length = 0;

  /** @param limit bytes that it holds at most */
  constructor(private readonly limit: number) {}

  get length(): number {
    return this.#length;
  }

  /** Bytes of memory that it takes. */
  get capacity(): number {
    return this.#buffer.length;
  }

  /** Valid until the next call of {@link append}. */
  get bytes(): Buffer {
    return this.#buffer.subarray(0, this.#length);
  }

  /** Appends as much as fits. */
  append(bytes: Buffer): void {
    const end = Math.min(this.limit, this.#length + bytes.length);
    if (end > this.#buffer.length) this.#grow(end);
    bytes.copy(this.#buffer, this.#length, 0, end - this.#length);
    this.#length = end;
  }

  clear(): void {
    this.#buffer = EMPTY;
    this.#length = 0;
  }

  /** To the exact size first, as most bodies arrive in one piece; then by doubling. */
  #grow(needed: number): void {
    const grown = Buffer.allocUnsafeSlow(Math.min(this.limit, Math.max(needed, this.#buffer.length * 2)));
    this.#buffer.copy(grown, 0, 0, this.#length);
    this.#buffer = grown;
  }
}
