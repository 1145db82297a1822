import { type Clock, systemClock } from './time/clock.ts';

/** Bytes per second in each direction; null: any number. */
export interface Bandwidth {
  /** From the device: to clients. */
  up: number | null;
  /** To the device: from clients. */
  down: number | null;
}

const UNITS: Readonly<Record<string, number>> = { kbit: 1e3, mbit: 1e6, gbit: 1e9 };
const MIN_BITS = 8e3;
const MAX_BITS = 100e9;
export const BANDWIDTH_FORM = 'must be a rate such as 2Mbit, or up/down such as 512kbit/2Mbit or 512kbit/unlimited';

/**
 * Parses `2Mbit`, for each direction, or `512kbit/2Mbit`, up and down; `unlimited` leaves one out.
 *
 * @throws {Error} when it is neither; the message says what it has to be
 */
export function parseBandwidth(text: string): Bandwidth {
  const [up = '', down = up, ...more] = text.split('/');
  const parsed = { up: rateOf(up), down: rateOf(down) };
  if (more.length > 0 || (parsed.up === null && parsed.down === null)) throw new Error(BANDWIDTH_FORM);
  return parsed;
}

function rateOf(text: string): number | null {
  if (text.trim().toLowerCase() === 'unlimited') return null;
  const [, number = '', unit = ''] = /^(\d{1,6}(?:\.\d{1,3})?)\s?([kmg]bit)$/i.exec(text.trim()) ?? [];
  const bits = Number(number) * (UNITS[unit.toLowerCase()] ?? Number.NaN);
  if (!(bits >= MIN_BITS && bits <= MAX_BITS)) {
    throw new Error(number === '' ? BANDWIDTH_FORM : 'must be from 8kbit to 100Gbit');
  }
  return bits / 8;
}

/** What a late timer has missed is caught up, up to this; what nobody asked for is not, but for as much as reading takes. */
const LATE_MS = 250;
const IDLE_MS = 20;
/** How long one turn takes, within these bounds. */
const TURN_MS = 20;
const [MIN_TURN, MAX_TURN] = [1024, 64 * 1024];

interface Turn {
  bytes: number;
  go: () => void;
}

/**
 * A rate that several connections share. Each asks for a turn, for some bytes, and asks again once it got it: so they take turns,
 * and those that want as much as they can get get the same.
 */
export class SharedRate {
  /** The most bytes of a turn. */
  readonly turnBytes: number;
  readonly #waiting = new Set<Turn>();
  /** When all that was let pass will have passed at the rate, in terms of the clock. */
  #freeAt = Number.NEGATIVE_INFINITY;
  #isTimed = false;

  constructor(
    private readonly bytesPerSecond: number,
    private readonly clock: Pick<Clock, 'now' | 'after'> = systemClock,
  ) {
    this.turnBytes = Math.round(Math.min(MAX_TURN, Math.max(MIN_TURN, (bytesPerSecond * TURN_MS) / 1000)));
  }

  /**
   * Calls `go` when so many bytes may pass: at once, or later.
   *
   * @returns gives the turn up
   */
  take(bytes: number, go: () => void): () => void {
    const turn = { bytes, go };
    this.#waiting.add(turn);
    if (!this.#isTimed) this.#letPass(IDLE_MS);
    return () => void this.#waiting.delete(turn);
  }

  #letPass(caughtUpMs: number): void {
    const now = this.clock.now();
    this.#freeAt = Math.max(this.#freeAt, now - caughtUpMs);
    for (const turn of this.#waiting) {
      if (this.#freeAt > now) break;
      this.#waiting.delete(turn);
      this.#freeAt += (turn.bytes / this.bytesPerSecond) * 1000;
      // A request made meanwhile comes last.
      this.#isTimed = true;
      turn.go();
    }
    this.#isTimed = this.#waiting.size > 0;
    if (!this.#isTimed) return;
    this.clock.after(Math.max(1, this.#freeAt - now), () => this.#letPass(LATE_MS));
  }
}
