import type { RoundTrip, StreamMemory } from './connection-meters.ts';
import { CreditPacer, type PacedStream } from './credit-pacer.ts';
import { GrowingWindow } from './credit-window.ts';
import { ProtocolViolation } from './frames.ts';

// Measured with `@ngrok/ngrok` 1.7.0 (Rust, muxado 0.5.0).

/** Initial window of each direction of a stream, in bytes; the maximum too, unless both peers support larger ones. */
export const WINDOW = 262_144;
/** Received bytes are credited in steps of this size instead of frame by frame. */
const CREDIT_STEP = 65_536;
/** The window of a stream that comes on several connections, where the first bytes may be the last to arrive. */
const SPREAD_WINDOW = 2_097_152;
/**
 * A stream becomes bulk when so many steps of credit follow each other within so many round trips each, after 192 KiB. On
 * shorter paths, the window does not limit it.
 */
const BULK_STEPS = 2;
const BULK_ROUND_TRIPS = 2;
const BULK_LEAST_MS = 2;

export interface CreditHost {
  readonly roundTrip: RoundTrip;
  readonly largestWindow: number;
  readonly memory: Pick<StreamMemory, 'add' | 'reserve' | 'room'>;
}

/** How much the peer of a stream may send: its window, and the credit that enlarges it again. */
export class ReceiveCredit {
  withheld = false;
  #window = WINDOW;
  #uncredited = 0;
  #pacer: CreditPacer | null = null;
  #growing: GrowingWindow | null = null;
  #isSpread = false;
  /** What the peer may send beyond the window of the protocol. */
  #reserved = 0;
  #quickSteps = 0;
  #steppedAt = 0;

  constructor(
    private readonly host: CreditHost,
    private readonly send: (bytes: number) => void,
  ) {}

  /** Bytes that the peer may send. */
  get window(): number {
    return this.#window;
  }

  /** @throws {ProtocolViolation} when the window does not allow so many bytes */
  use(bytes: number): void {
    if (bytes > this.#window) throw new ProtocolViolation('more data than the window of the stream allows');
    this.#window -= bytes;
    if (this.#reserved > 0) this.#reserve(this.#window);
  }

  receive(bytes: number): void {
    this.#uncredited += bytes;
    this.#pacer?.receive(bytes, performance.now());
    this.#growing?.receive(bytes, performance.now(), this.host.roundTrip.least, this.host.memory.room);
  }

  /** Credits what has arrived, once that is worth a frame. */
  grant(): void {
    if (this.#pacer !== null) return void this.#pacer.grant(performance.now());
    if (this.#uncredited < CREDIT_STEP) return;
    if (this.host.largestWindow > WINDOW) return void this.#grantAhead();
    this.acknowledge();
    this.#detectBulk();
  }

  /** The stream comes on several connections. */
  widen(): void {
    this.#isSpread = true;
  }

  /** Credits what has arrived, however little it is. */
  acknowledge(): void {
    if (this.#uncredited > 0) this.#grant(this.#uncredited);
  }

  /** After pacing, the next credit is a full window: that makes up for all that the peer may miss. */
  makeUp(): void {
    if (this.#pacer !== null) this.#uncredited = WINDOW;
  }

  /** Grants nothing ahead of data any more. */
  end(): void {
    this.#pacer?.stop();
    this.#pacer = null;
  }

  /** The peer sends nothing more. */
  release(): void {
    if (this.#reserved > 0) this.#reserve(0);
  }

  #grantAhead(): void {
    this.#growing ??= new GrowingWindow(WINDOW, CREDIT_STEP);
    const spread = this.#isSpread ? Math.min(SPREAD_WINDOW, this.host.memory.room) : 0;
    const bytes = Math.floor(Math.max(this.#growing.target, spread)) - this.#window;
    if (bytes >= CREDIT_STEP) this.#grant(bytes);
    this.#reserve(this.#window);
  }

  #grant(bytes: number): void {
    this.send(bytes);
    this.#window += bytes;
    this.#uncredited = 0;
  }

  #reserve(window: number): void {
    const reserved = Math.max(0, window - WINDOW);
    this.host.memory.reserve(reserved - this.#reserved);
    this.#reserved = reserved;
  }

  #detectBulk(): void {
    const roundTrip = this.host.roundTrip.least;
    const now = performance.now();
    const isQuick = now - this.#steppedAt < BULK_ROUND_TRIPS * (roundTrip ?? 0);
    this.#quickSteps = isQuick ? this.#quickSteps + 1 : 0;
    this.#steppedAt = now;
    if (this.#quickSteps < BULK_STEPS || (roundTrip ?? 0) < BULK_LEAST_MS) return;
    this.#quickSteps = 0;
    this.#pacer = new CreditPacer(this.#paced(), this.#window, now);
  }

  #paced(): PacedStream {
    const credit = this;
    return {
      get roundTrip() {
        return credit.host.roundTrip.least ?? 0;
      },
      get room() {
        return credit.host.memory.room;
      },
      get withheld() {
        return credit.withheld;
      },
      grant: (bytes) => this.#grant(bytes),
      onSilence: () => {
        this.makeUp();
        this.end();
        if (!this.withheld) this.grant();
      },
    };
  }
}
