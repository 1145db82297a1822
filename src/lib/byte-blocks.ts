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

  /** All bytes in a piece of its own, or in the only block. */
  joined(): Buffer {
    const [only] = this.#blocks;
    if (only !== undefined && this.#blocks.length === 1) return only.subarray(0, this.length);
    const whole = Buffer.allocUnsafeSlow(this.length);
    for (const [at, block] of this.#blocks.entries()) block.copy(whole, at * BLOCK);
    return whole;
  }

  clear(): void {
    if (this.length > 0) this.#blocks = [];
    this.length = 0;
  }
}
