/** Members that take turns: the one that has waited longest comes first. */
export class Rotation<T> {
  readonly #waiting = new Set<T>();

  get members(): readonly T[] {
    return [...this.#waiting];
  }

  /** The member whose turn it is; it stays so. */
  get first(): T | undefined {
    const [first] = this.#waiting;
    return first;
  }

  get size(): number {
    return this.#waiting.size;
  }

  add(member: T): void {
    this.#waiting.add(member);
  }

  /** @returns whether it was a member */
  remove(member: T): boolean {
    return this.#waiting.delete(member);
  }

  /** The member whose turn it is, of those that fit; undefined when none does. */
  next(fits: (member: T) => boolean = () => true): T | undefined {
    for (const member of this.#waiting) {
      if (!fits(member)) continue;
      if (this.#waiting.size > 1) {
        this.#waiting.delete(member);
        this.#waiting.add(member);
      }
      return member;
    }
    return undefined;
  }
}
