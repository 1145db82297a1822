/** Lets only so much work run at a time; the rest waits in the order in which it came. */
export class Limiter {
  #running = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(private readonly max: number) {}

  /** Runs the work when its turn has come, and settles as it does. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running >= this.max) await new Promise<void>((turn) => this.#waiting.push(turn));
    else this.#running++;
    try {
      return await work();
    } finally {
      // The place goes straight to the next, so that nobody can slip in between.
      const next = this.#waiting.shift();
      if (next) next();
      else this.#running--;
    }
  }
}
