/** Members that take turns; the one that has waited longest is next. */
export class RoundRobin<T> {
  readonly #waiting = new Set<T>();

  get members(): readonly T[] {
    return [...this.#waiting];
  }

  /** The member that is next; does not advance the rotation. */
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

  remove(member: T): boolean {
    return this.#waiting.delete(member);
  }

  /** The next member that passes the filter; undefined when no member does. */
  next(isEligible: (member: T) => boolean = () => true): T | undefined {
    for (const member of this.#waiting) {
      if (!isEligible(member)) continue;
      if (this.#waiting.size > 1) {
        this.#waiting.delete(member);
        this.#waiting.add(member);
      }
      return member;
    }
    return undefined;
  }
}
