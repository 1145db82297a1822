import { PolicyFailure } from '../policy-failure.ts';

/** One unit is about 30 ns of work: one phase of one request cannot block the process for long. */
const UNITS = 5_000_000;

/** Strings that an expression builds; the edge's own limits are lower. */
const MAX_TEXT = 64 * 1024;

/** Lists that an expression builds. */
const MAX_LIST = 2048;

/** Limits the cost of the expressions of one phase: tenants write the policies. */
export class Budget {
  #left = UNITS;

  /** @throws {PolicyFailure} when nothing is left */
  spend(units: number): void {
    this.#left -= units;
    if (this.#left < 0) throw new PolicyFailure('ERR_NGROK_2300', 'the policy exceeds its computing time');
  }

  get isExhausted(): boolean {
    return this.#left < 0;
  }

  renew(): void {
    this.#left = UNITS;
  }
}

/** @throws when a string would exceed the limit */
export function checkTextLength(length: number): void {
  if (length > MAX_TEXT) throw new Error(`a string has more than ${MAX_TEXT} characters`);
}

/** @throws when a string exceeds the limit */
export function boundedText(text: string): string {
  checkTextLength(text.length);
  return text;
}

/** @throws when a list would exceed the limit */
export function checkListSize(size: number): void {
  if (size > MAX_LIST) throw new Error(`a list has more than ${MAX_LIST} elements`);
}
