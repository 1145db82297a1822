import { EventEmitter, once } from 'node:events';
import type { Clock } from '../../lib/time/clock.ts';

/** When the session supervisor last made progress; the watchdog restarts an agent that makes none. */
export class ProgressMonitor {
  #last: number;
  readonly #steps = new EventEmitter<{ step: [] }>();

  constructor(private readonly clock: Clock) {
    this.#last = clock.now();
  }

  /** Call this with every step, at least every 30 s. */
  report(): void {
    this.#last = this.clock.now();
    this.#steps.emit('step');
  }

  /**
   * Resolves with the next step: work that is due then needs no timer of its own, which would wake the device again.
   *
   * @throws AbortError when the signal aborts first
   */
  async next(signal: AbortSignal): Promise<void> {
    await once(this.#steps, 'step', { signal });
  }

  get silentMs(): number {
    return this.clock.now() - this.#last;
  }
}
