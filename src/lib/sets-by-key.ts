const NONE: ReadonlySet<never> = new Set();

/** Values by a key that several share, in the order of their addition. */
export class SetsByKey<T> {
  readonly #values = new Map<string, Set<T>>();

  get(key: string): ReadonlySet<T> {
    return this.#values.get(key) ?? NONE;
  }

  has(key: string): boolean {
    return this.#values.has(key);
  }

  keys(): Iterable<string> {
    return this.#values.keys();
  }

  add(key: string, value: T): void {
    const values = this.#values.get(key) ?? new Set();
    this.#values.set(key, values.add(value));
  }

  delete(key: string, value: T): void {
    const values = this.#values.get(key);
    values?.delete(value);
    if (values?.size === 0) this.#values.delete(key);
  }
}
