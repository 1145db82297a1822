/** Bytes of a block: as many as most pieces have, and few enough to waste for one that is small. */
const BLOCK = 2048;

/**
 * Collects bytes that arrive in pieces of any size, in memory of its own: a piece keeps up to 64 KiB alive that were read with
 * it, many small ones take more for themselves than for their bytes, and joining them at each piece leaves copies behind.
 */
export class ByteBlocks {
  #blocks: Buffer[] = [];
  length = 0;

  /** Bytes of memory. */
  get held(): number {
    return this.#blocks.length * BLOCK;
  }

  /** Adds a copy of the bytes. */
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

  /** All bytes. */
  joined(): Buffer {
    return Buffer.concat(this.#blocks, this.length);
  }

  clear(): void {
    if (this.length > 0) this.#blocks = [];
    this.length = 0;
  }
}
