/** TXT values of DNS-01 (RFC 8555, section 8.4) while orders need them, by name in the challenge zone. */
export class TxtChallenges {
  // Two orders may overlap at one name: a cancelled one and its successor.
  readonly #values = new Map<string, string[]>();

  /**
   * Publishes a value beside those already at the name.
   *
   * @param name where the domain's `_acme-challenge` record leads
   * @returns takes it back
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

  /**
   * The values at a name.
   *
   * @param name lower case, without a final dot
   */
  lookup(name: string): string[] {
    return [...(this.#values.get(name) ?? [])];
  }
}
