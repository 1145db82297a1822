import { trackBuffer } from '../lib/minor-gc.ts';
import type { ByteReceiver } from './byte-channel.ts';
import { type FrameWriter, MuxError, ProtocolViolation } from './frames.ts';

/** Bytes that each direction of a stream may carry before the receiver credits; fixed by the protocol. */
export const WINDOW = 262_144;
/** Received bytes are credited in steps of this size, not frame by frame. */
const CREDIT_STEP = 65_536;
/** Bytes waiting to be sent from which on a writer is told to wait. */
const SEND_HIGH_WATER = 131_072;
/** Larger frames would make the other streams of the connection wait. */
const MAX_FRAME = 65_536;
/**
 * A window smaller than this is left to grow while there is more to send: the SDK credits every 8 KiB that it reads, and
 * frames of that size would cost both sides more than the pause. All of the window comes back, for it credits whatever
 * it has read.
 */
const WORTHWHILE_WINDOW = 65_536;

/** What a channel tells its user. `onClosed` also says that the stream no longer counts at the agent. */
export interface ChannelReceiver extends ByteReceiver {
  /** The agent has consumed this many bytes of ours, in all. */
  onCredit?(total: number): void;
}

const NOBODY: ChannelReceiver = { onData() {}, onEnd() {} };

/** What a channel needs of the connection that carries it. */
export interface ChannelHost {
  /** Asks that {@link Channel.flushInto} is called soon. */
  ready(channel: Channel): void;
  windowIncrement(streamId: number, increment: number): void;
  reset(streamId: number, code: MuxError): void;
  forget(channel: Channel): void;
}

/**
 * One stream of a connection: window accounting and half-close in both directions, and what is waiting to be sent.
 * Everything written within a tick leaves in one DATA frame, a FIN included.
 */
export class Channel {
  /** 0 until the connection opens the stream. */
  id = 0;
  receiver: ChannelReceiver = NOBODY;
  readonly #host: ChannelHost;

  #sendWindow = WINDOW;
  #credited = 0;
  #waiting: Buffer[] = [];
  #waitingLength = 0;
  #full = false;
  #synDue = false;
  #ending = false;
  #finSent = false;

  #receiveWindow = WINDOW;
  #uncredited = 0;
  #paused = false;
  #finReceived = false;

  #aborted = false;
  #closed = false;

  constructor(host: ChannelHost) {
    this.#host = host;
  }

  /** Whether nothing can be sent or received any more. */
  get closed(): boolean {
    return this.#closed;
  }

  /** Makes this a stream opened by us: its first frame carries SYN. */
  open(id: number): void {
    this.id = id;
    this.#synDue = true;
    this.#host.ready(this);
  }

  /**
   * Queues bytes to be sent.
   *
   * @returns false when the writer should wait for {@link ChannelReceiver.onDrain}
   */
  write(bytes: Buffer): boolean {
    if (this.#ending || this.#closed || bytes.length === 0) return !this.#full;
    this.#waiting.push(bytes);
    this.#waitingLength += bytes.length;
    trackBuffer(bytes.length);
    this.#full = this.#waitingLength >= SEND_HIGH_WATER;
    if (this.id !== 0) this.#host.ready(this);
    return !this.#full;
  }

  /** Sends FIN after everything written; the other direction stays open. */
  end(): void {
    if (this.#ending || this.#closed) return;
    this.#ending = true;
    if (this.id !== 0) this.#host.ready(this);
  }

  /**
   * Gives up both directions: FIN, and RST if the agent goes on sending. RST alone would not wake an SDK task that
   * waits to read, and the stream would keep its slot at the agent.
   */
  abort(): void {
    if (this.#closed || this.#aborted) return;
    this.#aborted = true;
    // Nothing of it has left: an end without the header of the stream would end the agent's session.
    if (this.id === 0 || this.#synDue) {
      this.#close();
      return;
    }
    this.#waiting = [];
    this.#waitingLength = 0;
    if (this.#uncredited > 0 && !this.#finReceived) this.#grant(this.#uncredited);
    this.end();
  }

  /** Ends the stream with RST at once; for streams on which a FIN would do harm. */
  reset(code: MuxError): void {
    if (this.#closed) return;
    if (this.id !== 0) this.#host.reset(this.id, code);
    this.#close();
  }

  /** Withholds credit, so that the agent stops once the window is used up. */
  pause(): void {
    this.#paused = true;
  }

  /** Credits what was received while paused. */
  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    this.#credit();
  }

  /** Moves what the window allows into the writer; returns whether more could be sent at once. */
  flushInto(out: FrameWriter): boolean {
    if (this.#closed || this.#finSent) return false;
    const [payload, length] = this.#takePayload(Math.min(this.#allowed(), MAX_FRAME));
    const fin = this.#ending && this.#waitingLength === 0;
    if (length > 0 || this.#synDue || fin) {
      this.#sendWindow -= length;
      out.data(this.id, payload, length, { syn: this.#synDue, fin });
      this.#synDue = false;
    }
    if (fin) this.#finSent = true;
    if (fin || (this.#full && this.#waitingLength < SEND_HIGH_WATER)) {
      this.#full = false;
      this.receiver.onDrain?.();
    }
    if (fin && this.#finReceived) this.#close();
    return !this.#finSent && this.#waitingLength > 0 && this.#allowed() > 0;
  }

  /** How many bytes may be sent, as things stand. */
  #allowed(): number {
    const isWorthwhile = this.#sendWindow >= Math.min(this.#waitingLength, WORTHWHILE_WINDOW);
    return isWorthwhile ? this.#sendWindow : 0;
  }

  #takePayload(limit: number): [Buffer[], number] {
    if (this.#waitingLength <= limit) {
      const all: [Buffer[], number] = [this.#waiting, this.#waitingLength];
      this.#waiting = [];
      this.#waitingLength = 0;
      return all;
    }
    const taken: Buffer[] = [];
    let left = limit;
    let used = 0;
    while (left > 0) {
      const piece = this.#waiting[used] as Buffer;
      if (piece.length > left) {
        taken.push(piece.subarray(0, left));
        this.#waiting[used] = piece.subarray(left);
        left = 0;
      } else {
        taken.push(piece);
        left -= piece.length;
        used += 1;
      }
    }
    this.#waiting.splice(0, used);
    this.#waitingLength -= limit;
    return [taken, limit];
  }

  /** A DATA frame of `length` bytes begins. */
  receiveHeader(length: number): void {
    if (length > this.#receiveWindow) throw new ProtocolViolation('data beyond the window of a stream');
    if (this.#finReceived && length > 0) throw new ProtocolViolation('data after the end of a stream');
    this.#receiveWindow -= length;
    if (this.#aborted && length > 0) {
      // A task of the SDK that waits for credit learns of a reset only when credit wakes it up.
      this.#host.windowIncrement(this.id, WINDOW);
      this.#host.reset(this.id, MuxError.cancelled);
      this.#close();
    }
  }

  receivePayload(piece: Buffer): void {
    if (this.#aborted || this.#closed) return;
    this.#uncredited += piece.length;
    this.receiver.onData(piece);
    if (!this.#paused) this.#credit();
  }

  receiveFin(): void {
    if (this.#closed || this.#finReceived) return;
    this.#finReceived = true;
    if (!this.#aborted) this.receiver.onEnd();
    if (this.#finSent) this.#close();
  }

  receiveReset(): void {
    if (!this.#closed) this.#close(new Error('the agent reset the stream'));
  }

  receiveCredit(increment: number): void {
    this.#sendWindow = Math.min(this.#sendWindow + increment, WINDOW);
    this.#credited += increment;
    this.receiver.onCredit?.(this.#credited);
    if (this.#waitingLength > 0) this.#host.ready(this);
  }

  /** The connection is gone, and the stream with it. */
  lose(error: Error): void {
    if (!this.#closed) this.#close(error);
  }

  #credit(): void {
    if (this.#uncredited < CREDIT_STEP || this.#closed || this.#finReceived) return;
    this.#grant(this.#uncredited);
  }

  #grant(bytes: number): void {
    this.#host.windowIncrement(this.id, bytes);
    this.#receiveWindow += bytes;
    this.#uncredited = 0;
  }

  #close(error?: Error): void {
    this.#closed = true;
    this.#waiting = [];
    this.#waitingLength = 0;
    this.#host.forget(this);
    this.receiver.onClosed?.(error);
  }
}
