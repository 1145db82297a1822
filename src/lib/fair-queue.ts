/**
 * A queue with a limited number of places, which its owners share: each owner has a line, and the lines take turns. One owner
 * with many items neither keeps others out nor makes them wait.
 */
export class FairQueue<T> {
  /** In the order of their turns. A line without items is removed. */
  readonly #lines = new Map<string, T[]>();
  #size = 0;

  constructor(private readonly max: number) {}

  get size(): number {
    return this.#size;
  }

  /**
   * Adds an item at the end of its owner's line. In a full queue, the owner with at least two more items loses its newest one.
   *
   * @returns the item that is lost: that one, the new one when no owner has two more, or null
   */
  add(owner: string, item: T): T | null {
    const own = this.#lines.get(owner) ?? [];
    let lost: T | null = null;
    if (this.#size >= this.max) {
      const largest = [...this.#lines.values()].reduce((most, each) => (each.length > most.length ? each : most), own);
      if (largest.length < own.length + 2) return item;
      lost = largest.pop() ?? null;
      this.#size -= 1;
    }
    own.push(item);
    this.#lines.set(owner, own);
    this.#size += 1;
    return lost;
  }

  /** The oldest item of the owner whose turn it is; undefined: there is none. */
  get next(): T | undefined {
    const [line] = this.#lines.values();
    return line?.[0];
  }

  /** Takes {@link next}. */
  take(): T | undefined {
    for (const [owner, line] of this.#lines) {
      this.#lines.delete(owner);
      const item = line.shift();
      if (line.length > 0) this.#lines.set(owner, line);
      this.#size -= 1;
      return item;
    }
    return undefined;
  }
}
