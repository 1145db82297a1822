/** A map that holds so many entries at most: what was set longest ago goes first. To set an entry again keeps it. */
export class RecentMap<K, V> extends Map<K, V> {
  readonly #limit: number;

  constructor(limit: number) {
    super();
    this.#limit = limit;
  }

  override set(key: K, value: V): this {
    // Taken out and put back: a map's entries are in the order in which they came.
    this.delete(key);
    super.set(key, value);
    if (this.size > this.#limit) this.delete(this.keys().next().value as K);
    return this;
  }
}
