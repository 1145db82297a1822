interface Written {
  readonly id: string;
  readonly answeredAt: number;
}

/** A request to a gateway, as it begins. */
interface Asked {
  readonly gateway: string;
  /** Counts times before and after a loss. */
  readonly time: number;
  readonly isAnswered: boolean;
}

/** What was written by the management API in a history, and what of it readers saw; and what of it cannot be. */
export class WritesRecord {
  #written: Written[] = [];
  /** The newest that readers of each gateway have seen. */
  readonly #seen = new Map<string, string>();
  /** What was written from then on may be lost, until all agree again; in milliseconds of `performance.now()`. */
  #lostFrom = Number.POSITIVE_INFINITY;
  /** Counts times before and after a loss: what was asked before it is not judged after it. */
  #time = 0;
  readonly violations: string[] = [];
  /** Whether nothing is asked, so that copies can become equal. */
  isPaused = false;
  /** Whether every write and read has to be answered, with 503 at least. */
  isAnswered = false;
  /** How many were written. */
  count = 0;

  /** The newest that readers of a gateway have seen; undefined: none. */
  seenAt(gateway: string): string | undefined {
    return this.#seen.get(gateway);
  }

  get newest(): string | undefined {
    return this.#written.at(-1)?.id;
  }

  /** What a request is judged by, as it begins. */
  begins(gateway: string): Asked {
    return { gateway, time: this.#time, isAnswered: this.isAnswered };
  }

  /** @param status null: there was no answer */
  written(asked: Asked, status: number | null, id: string): void {
    if (!this.#isDone(asked, 'write', status, 201)) return;
    this.count += 1;
    this.#written.push({ id, answeredAt: performance.now() });
    this.#seen.set(asked.gateway, id);
  }

  read(asked: Asked, status: number | null, id: string): void {
    const { gateway } = asked;
    if (status !== 404 && this.#isDone(asked, 'read', status, 200)) this.#seen.set(gateway, id);
    else if (status === 404 && asked.time === this.#time && this.#seen.get(gateway) === id)
      this.violations.push(`gateway ${gateway} does not have ${id}, which it has shown`);
  }

  /** Whether something was done, and counts. */
  #isDone({ gateway, time, isAnswered }: Asked, what: string, status: number | null, done: number): boolean {
    const mayFail = status === 503 || (status === null && !(isAnswered && this.isAnswered));
    if (!mayFail && status !== done)
      this.violations.push(`a ${what} by gateway ${gateway} was answered with ${status ?? 'nothing'}`);
    return status === done && time === this.#time;
  }

  /** What was written from a moment on may be lost. */
  mayLoseFrom(at: number): void {
    this.#lostFrom = at;
    this.#time += 1;
    this.#seen.clear();
  }

  /** @param present what there is, for all gateways */
  agreed(present: ReadonlySet<string>): void {
    const lost = this.#written.filter(({ id }) => !present.has(id));
    for (const { id, answeredAt } of lost)
      if (answeredAt < this.#lostFrom) this.violations.push(`${id} was written and is lost`);
    this.#written = this.#written.filter(({ id }) => present.has(id));
  }

  /** From now on, nothing may be lost. */
  becomeExact(): void {
    this.#lostFrom = Number.POSITIVE_INFINITY;
    this.#time += 1;
    this.#seen.clear();
  }
}
