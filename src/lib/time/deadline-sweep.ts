export interface Timed {
  /** @param now milliseconds of `performance.now()` */
  checkTime(now: number): void;
}

/** Checks the deadlines of all its members at intervals; a timer for each would cost more. */
export class DeadlineSweep<T extends Timed> implements Iterable<T> {
  readonly #members = new Set<T>();
  #timer: NodeJS.Timeout | undefined;

  /** @param interval milliseconds */
  constructor(private readonly interval: number) {}

  add(member: T): void {
    this.#members.add(member);
    this.#timer ??= setInterval(() => this.#sweep(), this.interval).unref();
  }

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
