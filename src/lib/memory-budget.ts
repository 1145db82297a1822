/** Holds bytes that somebody else has yet to read. */
export interface MemoryUser {
  /** Gives some of them up. */
  shed(): void;
}

/** Limits the bytes that its users hold together. Beyond the limit, the user with the most gives some up. */
export class MemoryBudget implements MemoryUser {
  readonly #held = new Map<MemoryUser, number>();
  #total = 0;
  #promised = 0;

  /** @param whole the budget that this one is a share of */
  constructor(
    private readonly limit: number,
    private readonly whole: MemoryBudget | null = null,
  ) {}

  /** Bytes that its users hold together. */
  get held(): number {
    return this.#total;
  }

  /** Bytes until the limit, if all arrive that may. */
  get room(): number {
    const own = Math.max(0, this.limit - this.#total - this.#promised);
    return this.whole === null ? own : Math.min(own, this.whole.room);
  }

  /** Counts bytes that somebody may send from now on, or no longer. They only take room: nobody gives anything up for them. */
  promise(bytes: number): void {
    this.#promised += bytes;
    this.whole?.promise(bytes);
  }

  /** Records how many bytes a user holds now. */
  report(user: MemoryUser, bytes: number): void {
    const before = this.#held.get(user) ?? 0;
    this.#total += bytes - before;
    if (bytes === 0) this.#held.delete(user);
    else this.#held.set(user, bytes);
    this.whole?.report(this, this.#total);
    if (bytes > before && this.#total > this.limit) this.shed();
  }

  shed(): void {
    let most: MemoryUser | null = null;
    let bytes = 0;
    for (const [user, held] of this.#held) {
      if (held <= bytes) continue;
      most = user;
      bytes = held;
    }
    most?.shed();
  }
}
