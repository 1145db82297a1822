import type { BulkContext, BulkRunner, BulkWorld } from './bulk-runner.ts';

/** Runs bulk actions; its code is loaded when there is one. The last one that was started is woken. */
export class BulkActionJob {
  #wake: () => void = () => {};

  constructor(
    private readonly context: BulkContext,
    private readonly world: BulkWorld,
  ) {
    // A gateway that did not reach this one may have begun one.
    context.store.database.onRowApplied((table) => {
      if (table === 'bulk_actions') this.#wake();
    });
  }

  /** There is a new one. */
  wake(): void {
    this.#wake();
  }

  /** Goes on with what is left of those that a gateway has begun. @returns stops that */
  start(): () => Promise<void> {
    let runner: Promise<BulkRunner> | null = null;
    this.#wake = () => {
      runner ??= import('./bulk-runner.ts').then(({ BulkRunner }) => new BulkRunner(this.context, this.world));
      void runner.then((each) => each.wake());
    };
    if (this.context.store.bulkActions.running() !== null) this.#wake();
    return async () => {
      this.#wake = () => {};
      await (await runner)?.stop();
    };
  }
}
