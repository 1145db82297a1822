/** A map with a maximum number of entries. When full, it drops the entry whose last `set` is the longest ago. */
export class BoundedMap<K, V> extends Map<K, V> {
  readonly #limit: number;

  constructor(limit: number) {
    super();
    this.#limit = limit;
  }

  override set(key: K, value: V): this {
    // Deleted first: a map iterates in insertion order.
    this.delete(key);
    super.set(key, value);
    if (this.size > this.#limit) this.delete(this.keys().next().value as K);
    return this;
  }
}
