import { GrowingBytes } from './growing-bytes.ts';

/** Limits what all connections together hold of messages that have not arrived whole. */
export interface PendingMemory {
  /**
   * Takes more memory, or gives some back.
   *
   * @returns false when there is no room; then nothing is taken
   */
  hold(bytes: number): boolean;
}

/** The beginning of something that has not arrived whole. */
export class PendingBytes {
  readonly #bytes: GrowingBytes;

  constructor(
    private readonly limit: number,
    private readonly memory: PendingMemory,
  ) {
    this.#bytes = new GrowingBytes(limit);
  }

  get length(): number {
    return this.#bytes.length;
  }

  /** Valid until the next change. */
  get bytes(): Buffer {
    return this.#bytes.bytes;
  }

  /** @returns false when it does not fit whole; then nothing is appended */
  append(bytes: Buffer): boolean {
    const length = this.#bytes.length + bytes.length;
    if (length > this.limit || !this.memory.hold(bytes.length)) return false;
    this.#bytes.append(bytes);
    return true;
  }

  clear(): void {
    if (this.#bytes.length === 0) return;
    this.memory.hold(-this.#bytes.length);
    this.#bytes.clear();
  }
}
