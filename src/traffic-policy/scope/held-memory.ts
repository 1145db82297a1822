import { type MemoryBudget, Reservation } from '../../lib/memory-budget.ts';
import { PolicyFailure } from '../policy-errors.ts';
import type { PolicyRequest, Until } from '../policy-subjects.ts';

/** Bytes that the actions of a policy may hold for a request. */
const MAX_HELD = 1024 * 1024;
/** So little is not reserved: that would take longer than to make it. */
const UNCOUNTED = 2048;
/** Bytes that are reserved at a time. */
const STEP = 4096;

const CODE = 'ERR_NGROK_5001';

/** Counts what the actions of a policy hold for a request, in the share of those whose policy it is. */
export class HeldMemory {
  #ofPhase = 0;
  #ofResponse = 0;
  #isRunning: boolean;
  #hasEnded = false;
  readonly #reserved: Reservation;

  /**
   * @param budget the share of those whose policy it is
   * @param isRunning whether a phase has begun
   */
  constructor(budget: MemoryBudget, request: PolicyRequest, isRunning: boolean) {
    this.#isRunning = isRunning;
    this.#reserved = new Reservation(budget);
    request.onEnd?.(() => {
      this.#hasEnded = true;
      this.#giveBack();
    });
  }

  /** A phase begins: what the last one held is gone. */
  begin(): void {
    this.#ofPhase = 0;
    this.#isRunning = true;
  }

  /** A phase has ended. @param isOver whether it cannot go on */
  end(isOver: boolean): void {
    this.#isRunning = false;
    if (isOver) this.#ofPhase = 0;
    this.#giveBack();
  }

  /** @throws {PolicyFailure} when it is too much */
  hold(bytes: number, until: Until): void {
    if (until === 'phase') this.#ofPhase += bytes;
    else this.#ofResponse += bytes;
    const held = this.#ofPhase + this.#ofResponse;
    if (held > MAX_HELD) throw new PolicyFailure(CODE, `the policy holds more than ${MAX_HELD} bytes for one request`);
    const more = held - this.#reserved.bytes;
    if (held <= UNCOUNTED || more <= 0 || (this.#hasEnded && !this.#isRunning)) return;
    if (this.#reserved.tryReserve(Math.ceil(more / STEP) * STEP)) return;
    throw new PolicyFailure(CODE, "what the authtoken's policies hold for requests takes too much memory");
  }

  /** Releases what is no longer held; a policy that runs may outlast the request. */
  #giveBack(): void {
    if (this.#isRunning) return;
    const held = this.#hasEnded ? 0 : this.#ofPhase + this.#ofResponse;
    this.#reserved.release();
    if (held > UNCOUNTED) this.#reserved.reserve(held);
  }
}
