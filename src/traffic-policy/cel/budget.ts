import type { Clock } from '../../lib/time/clock.ts';
import { currentTurn } from '../../lib/time/loop-turn.ts';
import { PolicyFailure } from '../policy-errors.ts';

/** One unit is about 30 ns of work; most text costs less. The wall clock ends a phase earlier when they cost more. */
const UNITS = 5_000_000;

/** The time that the expressions of a phase may take: nothing else runs in the process meanwhile. */
const MAX_MS = 20;

/** Units between two looks at the clock, which takes as long as a few units. */
const UNITS_PER_LOOK = 4000;

/** Strings and bytes that an expression builds; the edge's own limits are lower. */
const MAX_TEXT = 64 * 1024;

const MAX_LIST = 2048;

/** Limits the cost of the expressions of one phase, in units and in time: tenants write the policies. */
export class Budget {
  #left = UNITS;
  #lookAt = UNITS - UNITS_PER_LOOK;
  /** The last look at the clock; null before the first one, which most phases never reach. */
  #last: { at: number; turn: number; spentMs: number } | null = null;

  /** @param clock omitted: the time does not matter */
  constructor(private readonly clock: Pick<Clock, 'now'> | null = null) {}

  spend(units: number): void {
    this.#left -= units;
    if (this.#left < this.#lookAt) this.#look();
  }

  get isExhausted(): boolean {
    return this.#left < 0;
  }

  renew(): void {
    this.#left = UNITS;
    this.#lookAt = UNITS - UNITS_PER_LOOK;
    this.#last = null;
  }

  #look(): void {
    if (this.clock && this.#elapsed(this.clock.now()) > MAX_MS) this.#left = -1;
    this.#lookAt = Math.max(0, this.#left - UNITS_PER_LOOK);
    if (this.#left < 0) throw new PolicyFailure('ERR_NGROK_2300', 'the policy exceeds its computing time');
  }

  #elapsed(now: number): number {
    const turn = currentTurn();
    let spentMs = this.#last?.spentMs ?? 0;
    // Time between two turns of the event loop was spent waiting, for example for a body. When the whole process stands
    // still, for example a suspended machine, that alone must not fail a request.
    if (this.#last?.turn === turn) spentMs += Math.min(now - this.#last.at, MAX_MS / 2);
    this.#last = { at: now, turn, spentMs };
    return spentMs;
  }
}

/** @throws when a string would exceed the limit */
export function checkTextLength(length: number): void {
  if (length > MAX_TEXT) throw new Error(`a string has more than ${MAX_TEXT} characters`);
}

export function boundedText(text: string): string {
  checkTextLength(text.length);
  return text;
}

export function checkListSize(size: number): void {
  if (size > MAX_LIST) throw new Error(`a list has more than ${MAX_LIST} elements`);
}
