/** The TXT values of pending DNS-01 challenges (RFC 8555, section 8.4), by name in the challenge zone. */
export class TxtChallenges {
  // Two orders for one name may overlap: a cancelled order and its successor.
  readonly #values = new Map<string, string[]>();

  /**
   * Adds a value to those at the name.
   *
   * @param name the target of the domain's `_acme-challenge` record
   * @returns withdraws it
   */
  publish(name: string, value: string): () => void {
    const key = name.toLowerCase();
    this.#values.set(key, [...this.lookup(key), value]);
    return () => {
      const left = this.lookup(key);
      const index = left.indexOf(value);
      if (index >= 0) left.splice(index, 1);
      if (left.length === 0) this.#values.delete(key);
      else this.#values.set(key, left);
    };
  }

  /** The values at a name (lower case, without a final dot). */
  lookup(name: string): string[] {
    return [...(this.#values.get(name) ?? [])];
  }
}
