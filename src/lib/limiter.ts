/** Limits concurrent work; the rest waits in a queue. */
export class Limiter {
  #running = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(private readonly max: number) {}

  /** Runs the work when there is a free slot, and settles with its result. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running >= this.max) await new Promise<void>((turn) => this.#waiting.push(turn));
    else this.#running++;
    try {
      return await work();
    } finally {
      // The slot goes directly to the next in the queue, so that new calls cannot overtake it.
      const next = this.#waiting.shift();
      if (next) next();
      else this.#running--;
    }
  }
}
