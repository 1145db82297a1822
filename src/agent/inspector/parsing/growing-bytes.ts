import type { MemoryBudget } from '../../../lib/memory-budget.ts';

const EMPTY: Buffer = Buffer.alloc(0);
/** A small piece takes far less time and memory as a text of one byte a character. */
const SMALL = 4_096;

/** Copies of bytes in one piece, up to a limit. A slice would keep the whole chunk of the network that it is part of. */
export class GrowingBytes {
  /** All there is, while it is one small piece. */
  #small: string | null = null;
  #buffer = EMPTY;
  #length = 0;

  /** @param limit bytes that it holds at most */
  constructor(private readonly limit: number) {}

  get length(): number {
    return this.#length;
  }

  /** Bytes of memory that it takes. */
  get capacity(): number {
    return this.#small === null ? this.#buffer.length : this.#length;
  }

  /** Valid until the next call of {@link append}. */
  get bytes(): Buffer {
    return this.#small === null ? this.#buffer.subarray(0, this.#length) : Buffer.from(this.#small, 'latin1');
  }

  /** @returns bytes written */
  copyTo(target: Buffer, at: number): number {
    if (this.#small === null) return this.#buffer.copy(target, at, 0, this.#length);
    return target.write(this.#small, at, 'latin1');
  }

  /** Appends as much of a part as fits. */
  append(bytes: Buffer, from = 0, to = bytes.length): void {
    const added = to - from;
    if (this.#length === 0 && added <= SMALL && added <= this.limit) {
      this.#small = bytes.toString('latin1', from, to);
      this.#length = added;
      return;
    }
    if (this.#small !== null) this.#expand();
    const end = Math.min(this.limit, this.#length + added);
    if (end > this.#buffer.length) this.#grow(end);
    bytes.copy(this.#buffer, this.#length, from, from + end - this.#length);
    this.#length = end;
  }

  clear(): void {
    this.#small = null;
    this.#buffer = EMPTY;
    this.#length = 0;
  }

  #expand(): void {
    this.#buffer = this.bytes;
    this.#small = null;
  }

  /** To the exact size first, as most bodies arrive in one piece; then by doubling. */
  #grow(needed: number): void {
    const grown = Buffer.allocUnsafeSlow(Math.min(this.limit, Math.max(needed, this.#buffer.length * 2)));
    this.#buffer.copy(grown, 0, 0, this.#length);
    this.#buffer = grown;
  }
}

/** The budget for what all connections together hold of messages that have not arrived whole. */
export type PendingMemory = Pick<MemoryBudget, 'tryReserve' | 'release'>;

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
    if (length > this.limit || !this.memory.tryReserve(bytes.length)) return false;
    this.#bytes.append(bytes);
    return true;
  }

  clear(): void {
    if (this.#bytes.length === 0) return;
    this.memory.release(this.#bytes.length);
    this.#bytes.clear();
  }
}
