/** Something that grows with those who come. */
export interface KeyHolder {
  readonly keys: number;
  /** Forgets the half of its keys that were used longest ago. */
  forgetHalf(): void;
}

/**
 * Room for the keys of all limits together: one policy's can hold hundreds of thousands, filled by whoever likes to. Where
 * there is none left, the limit with most keys makes some.
 */
export class KeyRoom {
  readonly #limit: number;
  readonly #holders = new Set<KeyHolder>();
  #keys = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** To be called for every key that a holder has taken. */
  added(holder: KeyHolder): void {
    this.#holders.add(holder);
    this.#keys += 1;
    if (this.#keys <= this.#limit) return;
    let largest = holder;
    for (const other of this.#holders) if (other.keys > largest.keys) largest = other;
    largest.forgetHalf();
  }

  /** To be called for every key that a holder has forgotten. */
  removed(holder: KeyHolder): void {
    this.#keys -= 1;
    if (holder.keys === 0) this.#holders.delete(holder);
  }
}
