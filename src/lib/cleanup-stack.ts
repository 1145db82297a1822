import type { Log } from './log/log.ts';

type Step = () => unknown;

/** Cleanup steps of started components, run in reverse order. */
export class CleanupStack {
  readonly #steps: Step[] = [];

  constructor(private readonly log: Log) {}

  add(step: Step): void {
    this.#steps.push(step);
  }

  /**
   * Runs all steps, even after failures, and logs each failure. Steps run only once.
   *
   * @throws the first failure, after the last step
   */
  async run(): Promise<void> {
    const failures: unknown[] = [];
    for (const step of this.#steps.splice(0).reverse()) {
      try {
        await step();
      } catch (err) {
        failures.push(err);
        this.log.error({ err }, 'shutdown step failed');
      }
    }
    if (failures.length > 0) throw failures[0];
  }
}
