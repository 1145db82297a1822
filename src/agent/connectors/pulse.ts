import type { Clock } from '../../lib/clock.ts';

/** When the keeping of the session last made a step; whoever supervises the agent goes by it. */
export class Pulse {
  #last: number;

  constructor(private readonly clock: Clock) {
    this.#last = clock.now();
  }

  /** To be called with every step, at the least once in half a minute. */
  beat(): void {
    this.#last = this.clock.now();
  }

  /** Milliseconds since the last step. */
  get silentMs(): number {
    return this.clock.now() - this.#last;
  }
}
