import { CreditWindow } from './credit-window.ts';

/** The largest window of a stream between a gateway and an agent of this project, in bytes. */
export const LARGEST_WINDOW = 16_777_216;
/** More than TCP's slow start needs, which doubles its rate in each round trip. */
const STARTING = 4;
/** While a lost packet is sent again, what follows it waits, and credit with it: with less, the sender would stop. */
const CRUISING = 2;
/** Without data for so many round trips and milliseconds, the next data is another transfer. */
const QUIET_ROUND_TRIPS = 2;
const QUIET_MS = 100;

/**
 * The window of a stream whose peer supports larger ones than the protocol's. Unlike an SDK's, such a peer keeps all
 * credit that it gets.
 */
export class GrowingWindow {
  #window: CreditWindow | null = null;
  #receivedAt = 0;

  /**
   * @param least the window of a stream that is not bulk, in bytes
   * @param step received bytes that wait until they are credited
   */
  constructor(
    private readonly least: number,
    private readonly step: number,
  ) {}

  /** How much the peer may have sent, or have left to send, before it gets credit again; in bytes. */
  get target(): number {
    return this.#window?.target ?? this.least;
  }

  /**
   * Records received bytes.
   *
   * @param roundTrip milliseconds without queues; null: not known yet
   * @param room bytes of memory that the stream may take
   */
  receive(bytes: number, now: number, roundTrip: number | null, room: number): void {
    const quiet = now - this.#receivedAt - QUIET_MS;
    this.#receivedAt = now;
    if (roundTrip === null) return;
    if (this.#window === null || quiet > QUIET_ROUND_TRIPS * roundTrip) {
      const bounds = {
        least: this.least,
        most: LARGEST_WINDOW,
        step: this.step,
        starting: STARTING,
        cruising: CRUISING,
      };
      this.#window = new CreditWindow(bounds, now);
    }
    this.#window.receive(bytes, now, roundTrip, room);
  }
}
