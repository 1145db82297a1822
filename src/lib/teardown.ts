import type { Log } from './log.ts';

type Step = () => unknown;

/** What has been started, to be stopped in the opposite order. */
export class Teardown {
  readonly #steps: Step[] = [];

  constructor(private readonly log: Log) {}

  add(step: Step): void {
    this.#steps.push(step);
  }

  /**
   * Takes every step, whatever became of those before it.
   *
   * @throws the first failure, once all is done; each one is logged
   */
  async stop(): Promise<void> {
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
