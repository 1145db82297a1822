import type { Clock } from '../../lib/time/clock.ts';

/** When the session supervisor last made progress; the watchdog restarts an agent that makes none. */
export class ProgressMonitor {
  #last: number;

  constructor(private readonly clock: Clock) {
    this.#last = clock.now();
  }

  /** Call this with every step, at least every 30 s. */
  report(): void {
    this.#last = this.clock.now();
  }

  /** Milliseconds since the last step. */
  get silentMs(): number {
    return this.clock.now() - this.#last;
  }
}
