import type { MemoryBudget } from '../../../lib/memory-budget.ts';
import { GrowingBytes } from './growing-bytes.ts';

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
