/** Pieces of this size and above are kept as they are: copying them costs more than it saves. */
const LARGE = 4096;

/** A queue of bytes in about as much memory: small pieces, which keep the whole chunk alive they are of, are copied. */
export class ByteQueue {
  length = 0;
  #pieces: Buffer[] = [];
  /** The block that is being filled; it belongs behind the pieces. */
  #block: Buffer | null = null;
  #used = 0;

  /** @param uncopied how many pieces may be queued before small ones are copied */
  constructor(private readonly uncopied: number) {}

  push(piece: Buffer): void {
    this.length += piece.length;
    if (piece.length < LARGE && this.#pieces.length >= this.uncopied) this.#copy(piece);
    else {
      this.#endBlock();
      this.#pieces.push(piece);
    }
  }

  /** Removes up to `limit` bytes from the front. */
  take(limit: number): Buffer[] {
    this.#endBlock();
    const pieces = this.#pieces;
    if (this.length <= limit) {
      this.clear();
      return pieces;
    }
    let left = limit;
    let used = 0;
    while (left >= (pieces[used] as Buffer).length) {
      left -= (pieces[used] as Buffer).length;
      used += 1;
    }
    const taken = pieces.splice(0, used);
    const next = pieces[0] as Buffer;
    if (left > 0) {
      taken.push(next.subarray(0, left));
      pieces[0] = next.subarray(left);
    }
    this.length -= limit;
    return taken;
  }

  clear(): void {
    this.#pieces = [];
    this.#block = null;
    this.length = 0;
  }

  #copy(piece: Buffer): void {
    if (this.#block !== null && this.#used + piece.length > LARGE) this.#endBlock();
    if (this.#block === null) {
      this.#block = Buffer.allocUnsafe(LARGE);
      this.#used = 0;
    }
    this.#used += piece.copy(this.#block, this.#used);
  }

  #endBlock(): void {
    if (this.#block === null) return;
    this.#pieces.push(this.#block.subarray(0, this.#used));
    this.#block = null;
  }
}
