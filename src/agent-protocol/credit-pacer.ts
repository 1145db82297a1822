import { CreditWindow } from './credit-window.ts';

/** Credit of a stream that is not bulk; the SDK drops what would make it more (1.7.0). */
const WINDOW = 262_144;
/** Credit that may be outstanding on a stream at most, in bytes. */
const MOST = 4_194_304;
/** Granted together at most, in bytes; more at once could meet a full window at the peer. */
const BURST = 131_072;
const BURST_MS = 2;
/** Smaller grants are not worth a frame. */
const STEP = 65_536;
const BOUNDS = { least: WINDOW, initial: WINDOW, most: MOST, step: STEP, starting: 2, cruising: 1.15, restarts: true };
/** Credit that fell to a full window is missed for at most so many round trips. */
const FORGET_ROUND_TRIPS = 1.5;
/** Without data for so many round trips and milliseconds, the stream is no longer bulk. */
const SILENT_ROUND_TRIPS = 2;
const SILENT_MS = 100;

export interface PacedStream {
  readonly roundTrip: number;
  /** Bytes of memory that the stream may take. */
  readonly room: number;
  /** Whether nothing may be granted now. */
  readonly withheld: boolean;
  grant(bytes: number): void;
  /** Nothing arrives any more: from now on, received bytes are credited. The peer's window may be anything from 0 to full. */
  onSilence(): void;
}

/**
 * Grants credit ahead of the data of a bulk stream. The window of the protocol, refilled once a round trip, limits a stream
 * to 2.6 MB/s at 100 ms; nothing says that credit has to wait for data. The peer's window is full at most, so credit that
 * it cannot take is lost: it comes in pieces, and what was granted long ago and brought no data is forgotten.
 */
export class CreditPacer {
  readonly #window: CreditWindow;
  #outstanding: number;
  #grants: { at: number; bytes: number }[] = [];
  #grantedAt = 0;
  #receivedAt: number;
  #timer: NodeJS.Timeout | null = null;

  /** @param outstanding credit that the peer has not used, in bytes */
  constructor(
    private readonly stream: PacedStream,
    outstanding: number,
    now: number,
  ) {
    this.#outstanding = outstanding;
    this.#receivedAt = now;
    this.#window = new CreditWindow(BOUNDS, now);
    this.#wake(this.#silentMs);
  }

  receive(bytes: number, now: number): void {
    this.#receivedAt = now;
    this.#outstanding -= bytes;
    this.#window.receive(bytes, now, this.stream.roundTrip, this.stream.room);
  }

  grant(now: number): void {
    if (this.stream.withheld) return;
    this.#forget(now);
    const due = this.#window.target - this.#outstanding;
    if (due < STEP) return;
    const wait = this.#grantedAt + BURST_MS - now;
    const fits = WINDOW - this.#outstanding;
    const bytes = Math.min(Math.floor(due), Math.max(wait <= 0 ? BURST : 0, fits));
    if (bytes >= STEP) {
      this.#grantedAt = now;
      this.#outstanding += bytes;
      this.#grants.push({ at: now, bytes });
      this.stream.grant(bytes);
    }
    if (due - bytes >= STEP) this.#wake(BURST_MS);
  }

  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }

  get #silentMs(): number {
    return SILENT_ROUND_TRIPS * this.stream.roundTrip + SILENT_MS;
  }

  /** The peer has a full window at most, and what is on the way. */
  #forget(now: number): void {
    const oldest = now - FORGET_ROUND_TRIPS * this.stream.roundTrip;
    while (this.#grants[0] !== undefined && this.#grants[0].at < oldest) this.#grants.shift();
    let most = WINDOW;
    for (const { bytes } of this.#grants) most += bytes;
    this.#outstanding = Math.min(this.#outstanding, most);
  }

  #wake(ms: number): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#tick(), ms).unref();
  }

  #tick(): void {
    this.#timer = null;
    const now = performance.now();
    const silent = this.#receivedAt + this.#silentMs - now;
    if (silent <= 0) {
      this.stream.onSilence();
      return;
    }
    this.grant(now);
    if (this.#timer === null) this.#wake(silent);
  }
}
