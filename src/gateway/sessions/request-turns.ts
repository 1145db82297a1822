import { setImmediate as nextTurn } from 'node:timers/promises';
import { BoundedMap } from '../../lib/bounded-map.ts';
import { type Clock, systemClock } from '../../lib/time/clock.ts';

/** Bytes of requests that an authtoken may send per millisecond. They take some quarter of a processor. */
const BYTES_PER_MS = 32_768;
/** What a request costs besides its bytes. */
const REQUEST_BYTES = 16_384;
/** How long an authtoken may exceed that after a pause: an agent binds its thousands of endpoints at once. */
const BURST_MS = 10_000;
const MAX_REMEMBERED = 10_000;

interface Line {
  last: Promise<void>;
  /** When the requests so far are paid for, in milliseconds of the clock. */
  paidAt: number;
}

/**
 * Shares the processor among authtokens: in each turn of the event loop, one request of each is handled. Authtokens that
 * send too much have to wait; SDKs send the next request when they have the answer to the last.
 */
export class RequestTurns {
  readonly #lines = new BoundedMap<string, Line>(MAX_REMEMBERED);

  constructor(private readonly clock: Clock = systemClock) {}

  /**
   * Resolves when a request may be handled, in the order of the calls.
   *
   * @param credentialId id of the authtoken
   * @param size bytes of the request
   */
  next(credentialId: string, size: number): Promise<void> {
    const line = this.#lines.get(credentialId) ?? { last: Promise.resolve(), paidAt: Number.NEGATIVE_INFINITY };
    line.last = line.last.then(() => this.#turn(line, size));
    this.#lines.set(credentialId, line);
    return line.last;
  }

  async #turn(line: Line, size: number): Promise<void> {
    await nextTurn();
    const now = this.clock.now();
    line.paidAt = Math.max(line.paidAt, now - BURST_MS) + (size + REQUEST_BYTES) / BYTES_PER_MS;
    if (line.paidAt > now) await this.clock.sleep(line.paidAt - now);
  }
}
