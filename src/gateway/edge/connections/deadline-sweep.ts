/** Something whose time may run out. */
export interface Timed {
  /** @param now milliseconds of `performance.now()` */
  checkTime(now: number): void;
}

/** What is looked at now and then for whether its time is over: a timer for each would cost more than it is worth. */
export class DeadlineSweep<T extends Timed> implements Iterable<T> {
  readonly #members = new Set<T>();
  readonly #every: number;
  #timer: NodeJS.Timeout | undefined;

  /** @param every milliseconds */
  constructor(every: number) {
    this.#every = every;
  }

  add(member: T): void {
    this.#members.add(member);
    this.#timer ??= setInterval(() => this.#sweep(), this.#every).unref();
  }

  /** @returns whether it was there */
  delete(member: T): boolean {
    if (!this.#members.delete(member)) return false;
    if (this.#members.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    return true;
  }

  [Symbol.iterator](): Iterator<T> {
    return this.#members.values();
  }

  #sweep(): void {
    const now = performance.now();
    for (const member of [...this.#members]) member.checkTime(now);
  }
}
