/**
 * Limits the bytes that owners hold together. An owner can take as much as it leaves for others: alone a half, besides another
 * one a third each. So there is always room for one more, however much a few of them want.
 */
export class FairMemory {
  readonly #held = new Map<string, number>();
  #total = 0;

  /** @param limit in bytes */
  constructor(private readonly limit: number) {}

  /** Whether an owner can take so many bytes. */
  hasRoom(owner: string, bytes: number): boolean {
    return this.#of(owner) + bytes <= this.limit - this.#total - bytes;
  }

  /** Counts bytes of an owner, whether or not there is room. */
  take(owner: string, bytes: number): void {
    this.#held.set(owner, this.#of(owner) + bytes);
    this.#total += bytes;
  }

  release(owner: string, bytes: number): void {
    this.#total -= bytes;
    const left = this.#of(owner) - bytes;
    if (left > 0) this.#held.set(owner, left);
    else this.#held.delete(owner);
  }

  #of(owner: string): number {
    return this.#held.get(owner) ?? 0;
  }
}
