import { PolicyFailure } from '../policy-failure.ts';

/** About 30 ns of work each, so that one phase of one request never holds the process for more than a blink. */
const UNITS = 5_000_000;

/** Texts that an expression builds; the edge's own limits are below it. */
const MAX_TEXT = 64 * 1024;

/** Lists that an expression builds. */
const MAX_LIST = 2048;

/** Bounds what the expressions of one phase may cost: policies are written by tenants. */
export class Budget {
  #left = UNITS;

  /** @throws {PolicyFailure} when nothing is left */
  spend(units: number): void {
    this.#left -= units;
    if (this.#left < 0) throw new PolicyFailure('ERR_NGROK_2300', 'the policy needs too much computing time');
  }

  get isExhausted(): boolean {
    return this.#left < 0;
  }

  renew(): void {
    this.#left = UNITS;
  }
}

/** @throws when a text would be longer than an expression may make it */
export function checkTextLength(length: number): void {
  if (length > MAX_TEXT) throw new Error(`a text is longer than ${MAX_TEXT} characters`);
}

/** @throws when a text has become longer than an expression may make it */
export function boundedText(text: string): string {
  checkTextLength(text.length);
  return text;
}

/** @throws when a list would be longer than an expression may make it */
export function checkListSize(size: number): void {
  if (size > MAX_LIST) throw new Error(`a list has more than ${MAX_LIST} elements`);
}
