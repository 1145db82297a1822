/** A store of keys that grows with the number of clients. */
export interface KeyHolder {
  readonly keys: number;
  /** Drops the least recently used half of its keys. */
  forgetHalf(): void;
}

/**
 * Bounds the keys of all rate limits together: clients can fill one policy's with hundreds of thousands. When the room is
 * full, the limit with the most keys drops half of them.
 */
export class KeyRoom {
  readonly #holders = new Set<KeyHolder>();
  #keys = 0;

  constructor(private readonly limit: number) {}

  /** Call it for every key that a holder adds. */
  added(holder: KeyHolder): void {
    this.#holders.add(holder);
    this.#keys += 1;
    if (this.#keys <= this.limit) return;
    let largest = holder;
    for (const other of this.#holders) if (other.keys > largest.keys) largest = other;
    largest.forgetHalf();
  }

  /** Call it for every key that a holder drops. */
  removed(holder: KeyHolder): void {
    this.#keys -= 1;
    if (holder.keys === 0) this.#holders.delete(holder);
  }
}
