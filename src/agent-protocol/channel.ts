import { trackBuffer } from '../lib/process/minor-gc.ts';
import { turnTime } from '../lib/time/loop-turn.ts';
import type { ByteReceiver } from './byte-channel.ts';
import { ByteQueue } from './byte-queue.ts';
import { type FrameWriter, MuxError, ProtocolViolation, type Sender } from './frames.ts';
import { type CreditHost, ReceiveCredit, WINDOW } from './receive-credit.ts';

// Window sizes and the behaviour of SDKs were measured with `@ngrok/ngrok` 1.7.0 (Rust, muxado 0.5.0).

/** Queued bytes at which `write` tells the writer to wait. */
const SEND_HIGH_WATER = 131_072;
/** Streams that have less to send go before the others. */
const LITTLE = 16_384;
/** Larger frames would delay the connection's other streams. */
const MAX_FRAME = 65_536;
/**
 * While more than this is queued, smaller windows are left to grow. The SDK credits every read of 8 KiB, and frames of
 * that size cost both sides more than the pause. The wait ends: the SDK credits everything it has read.
 */
const WORTHWHILE_WINDOW = 65_536;
/** Writes of one turn that are sent without copying: a request's head and body. */
const UNCOPIED = 8;
/**
 * Smaller pieces count as small. The first ones of a turn are passed on as they arrive, the others together at its end:
 * a write to a client that does not read costs hundreds of bytes, whatever its size.
 */
const SMALL = 512;
const SMALL_PIECES_PER_TURN = 16;
/** Bytes that make a transfer bulk; below, it would be over before another connection is open. */
const BULK = 1_048_576;
/** The same for a transfer that has taken so many milliseconds: on a slow link, small requests would wait behind it for seconds. */
const SLOW_BULK = 131_072;
const SLOW_BULK_MS = 400;
/** Bytes that are sent are counted in steps of this size, and when credit arrives. */
const COUNTED = 65_536;
/** After so many milliseconds in which nothing was counted, the next is another transfer. */
const QUIET_MS = 1000;
/** Bytes of a frame of a transfer, on average. Small requests, one after another on a stream that is used again, have less. */
const BULK_FRAME = 2048;

/** Receives a channel's events. After `onClosed` the stream no longer counts towards the peer's limit. */
export interface ChannelReceiver extends ByteReceiver {
  /** The peer has consumed this many of our bytes in total. */
  onCredit?(total: number): void;
  /** The stream holds too much memory. The receiver aborts it; left out: it is reset, and `onClosed` follows. */
  onCut?(reason: Error): void;
}

/**
 * Bytes of a stream that was aborted which are discarded. A reset wakes no task of an SDK (muxado 0.5): one that sends more than
 * this is still sending, and notices it. One whose short answer crosses the abort may only wait for its upstream, and would keep
 * its slot for a time that the gateway cannot know; without a reset, it says when it ends.
 */
export const MAX_DISCARDED = 65_536;

const NOBODY: ChannelReceiver = { onData() {}, onEnd() {} };

export interface ChannelHost extends CreditHost {
  readonly turn: number;
  readonly peerHonoursReset: boolean;
  ready(channel: Channel): void;
  holds(channel: Channel): void;
  windowIncrement(streamId: number, increment: number): void;
  reset(streamId: number, code: MuxError): void;
  forget(channel: Channel): void;
  /** A whole request was read: its answer will be written. */
  answersSoon(): void;
  /** A channel transfers bulk. Called repeatedly as it goes on. @param isSent whether it is this end's */
  carriesBulk(isSent: boolean): void;
  /** Sends what the channel has as parts on other connections, once the peer knows it; false: it does not. */
  spread(channel: Channel): boolean;
}

/** A part that a stream has sent on another connection than its own, and that has not arrived yet. */
export interface PartOnItsWay {
  /** The stream has closed. */
  drop(): void;
}

/** Bytes that are worth a part on another connection. Only the last part of a stream has less. */
const PART_LEAST = 16_384;
/** Memory of the smallest early part: its bytes are copied into a block. */
const EARLY_BYTES = 4_352;

const memoryOfEarly = (length: number) => Math.max(length, EARLY_BYTES);

/**
 * One stream of a connection: its send queue, flow control and half-close in both directions. All writes of one tick are
 * sent in one DATA frame, including the FIN, unless {@link endFrame} separates them.
 */
export class Channel implements Sender {
  /** 0 until the connection opens the stream. */
  id = 0;
  receiver: ChannelReceiver = NOBODY;

  #sendWindow = WINDOW;
  #credited = 0;
  readonly #waiting = new ByteQueue(UNCOPIED);
  /** Bytes until the frame has to end. */
  #frameLeft = Number.POSITIVE_INFINITY;
  #full = false;
  #synDue = false;
  #ending = false;
  #finSent = false;

  /** When the first frame was sent, until its credit arrives: peers credit it at once. */
  #openedAt: number | null = null;

  /** Frames in both directions that are not counted yet, and bytes in them. */
  #frames = 0;
  #frameBytes = 0;
  /** Bytes transferred in both directions since the last pause, as counted last, and when that was. */
  #transferred = 0;
  #countedAt = Number.NEGATIVE_INFINITY;
  /** When the first of these bytes were counted. */
  #transferSince = 0;

  readonly #credit: ReceiveCredit;
  #paused = false;
  #finReceived = false;
  /** Received bytes that the receiver gets later. */
  #held: ByteQueue | null = null;
  #smallPieces = 0;
  #smallPiecesTurn = 0;
  /** Bytes that the receiver keeps on behalf of the stream. */
  #kept = 0;

  /** Whether the stream is aborted once everything has been sent. */
  #abortDue = false;
  #aborted = false;
  /** Bytes that have arrived since. */
  #discarded = 0;
  #closed = false;
  /** Whether a request on this stream, which the peer opened, had its turn. One that never had comes to nothing. */
  isServed = false;
  /** Whether it is a part of another stream, which may have ended meanwhile. */
  isPart = false;
  /** Whether our RST has ended it, and the peer may notice only later. */
  wasReset = false;

  /** Whether it is a client's, which both ends know by its connection's number and its id: its bytes may take other connections. */
  maySpread = false;
  #isKnown = false;
  /** Bytes that were sent, in whatever way, and that have arrived without a gap. */
  #sent = 0;
  #arrived = 0;
  #lanes: Set<PartOnItsWay> | null = null;
  /** Parts that came before what precedes them, by the bytes of the stream before each. */
  #early: Map<number, ByteQueue> | null = null;
  #earlyBytes = 0;

  constructor(private readonly host: ChannelHost) {
    this.#credit = new ReceiveCredit(host, (bytes) => {
      host.windowIncrement(this.id, bytes);
      this.#countTransfer(false);
    });
  }

  get closed(): boolean {
    return this.#closed;
  }

  get memory(): number {
    return this.#waiting.length + (this.#held?.length ?? 0) + this.#kept;
  }

  get sendsLittle(): boolean {
    return this.#waiting.length < LITTLE;
  }

  /** The receiver keeps this many further bytes until the stream closes. */
  keep(bytes: number): void {
    if (this.#closed) return;
    this.#kept += bytes;
    this.host.memory.add(bytes);
    // The budget learns of it at the end of this turn, also when nothing is sent or read.
    if (bytes > 0 && this.id !== 0) this.host.ready(this);
  }

  open(id: number): void {
    this.id = id;
    this.#synDue = true;
    this.host.ready(this);
  }

  /** @returns false when the writer should wait for {@link ChannelReceiver.onDrain} */
  write(bytes: Buffer): boolean {
    if (this.#ending || this.#closed || bytes.length === 0) return !this.#full;
    this.#waiting.push(bytes);
    this.host.memory.add(bytes.length);
    trackBuffer(bytes.length);
    this.#full = this.#waiting.length >= SEND_HIGH_WATER;
    if (this.id !== 0) this.host.ready(this);
    return !this.#full;
  }

  /** What was written so far and what follows travel in different frames. */
  endFrame(): void {
    if (this.#waiting.length > 0) this.#frameLeft = this.#waiting.length;
  }

  end(): void {
    if (this.#ending || this.#closed) return;
    this.#ending = true;
    if (this.id !== 0) this.host.ready(this);
  }

  /**
   * Ends both directions: with RST if the peer honours it, else FIN, then RST if the peer keeps sending. RST alone does
   * not wake an SDK task that waits to read, and the stream would keep its slot at the agent.
   */
  abort(): void {
    if (this.#closed || this.#aborted) return;
    this.#aborted = true;
    // Nothing has been sent yet: a stream that ends without its header would end the agent's session.
    if (this.id === 0 || this.#synDue) {
      this.#close();
      return;
    }
    if (this.host.peerHonoursReset) {
      this.reset(MuxError.cancelled);
      return;
    }
    this.#credit.makeUp();
    this.#drop();
    this.acknowledge();
    this.end();
  }

  /** Aborts once everything that was written has been sent, with the end if there is one. */
  abortWhenSent(): void {
    this.#abortDue = true;
    if (!this.#hasToSend) this.abort();
    else if (this.id !== 0) this.wake();
  }

  /** Ends the stream with RST immediately; for streams that must not carry a FIN. */
  reset(code: MuxError): void {
    if (this.#closed) return;
    if (this.id !== 0) this.host.reset(this.id, code);
    this.#drop();
    this.#close();
  }

  cut(reason: Error): void {
    if (this.#closed) return;
    this.#drop();
    if (this.receiver.onCut) this.receiver.onCut(reason);
    else this.#cancel(reason);
  }

  /** Holds what arrives, and withholds credit; the peer stops when the window is used up. */
  pause(): void {
    this.#paused = true;
    this.#credit.withheld = true;
  }

  /** Passes on what was held, and credits it. */
  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    this.#credit.withheld = false;
    if (this.#held === null) this.#grantCredit();
    else this.host.holds(this);
  }

  /** Passes on what was held, unless the stream is paused again. */
  deliver(): void {
    if (this.#paused || this.#closed) return;
    this.#deliver();
    if (!this.#paused) this.#grantCredit();
  }

  /** A whole request was received, which is answered now. */
  answersSoon(): void {
    this.host.answersSoon();
  }

  /** Credits what was received so far, however little it is. */
  acknowledge(): void {
    if (!this.#closed && !this.#finReceived) this.#credit.acknowledge();
  }

  flushInto(out: FrameWriter): boolean {
    if (this.#closed || this.#finSent || this.#leavesToOthers()) return false;
    const length = Math.min(this.#allowed(), MAX_FRAME, this.#waiting.length, this.#frameLeft);
    const fin = this.#ending && this.#waiting.length === length;
    if (length > 0 || this.#synDue || fin) {
      if (this.#synDue) this.#openedAt = performance.now();
      this.#frameLeft = this.#frameLeft === length ? Number.POSITIVE_INFINITY : this.#frameLeft - length;
      out.data(this.id, this.#take(length), length, { syn: this.#synDue, fin });
      this.#synDue = false;
    }
    if (fin) this.#finSent = true;
    this.#drained(fin);
    if (fin && this.#finReceived) this.#close();
    if (this.#abortDue && !this.#hasToSend) this.abort();
    return !this.#finSent && this.#waiting.length > 0 && this.#allowed() > 0;
  }

  #take(length: number): Buffer[] {
    this.#sendWindow -= length;
    this.#sent += length;
    this.#countFrame(length);
    // Much may be sent before there is credit again.
    if (this.#frameBytes >= COUNTED) this.#countTransfer(true);
    this.host.memory.add(-length);
    return this.#waiting.take(length);
  }

  #drained(isOver: boolean): void {
    if (!isOver && !(this.#full && this.#waiting.length < SEND_HIGH_WATER)) return;
    this.#full = false;
    this.receiver.onDrain?.();
  }

  /** Whether other connections carry what comes next. While parts are on their way there, what follows here would overtake them. */
  #leavesToOthers(): boolean {
    const isMuch = this.#waiting.length >= PART_LEAST;
    if (!this.#hasParts) {
      const mayBegin = this.maySpread && !this.#synDue && this.#frameLeft === Number.POSITIVE_INFINITY;
      return mayBegin && isMuch && this.host.spread(this);
    }
    if (isMuch || (this.#isOver && this.#waiting.length > 0)) this.host.spread(this);
    return true;
  }

  /** Whether parts are on their way to the peer. */
  get #hasParts(): boolean {
    return this.#lanes !== null && this.#lanes.size > 0;
  }

  /** Whether the peer has reacted to the stream, so that parts may refer to it. */
  get isKnown(): boolean {
    return this.#isKnown;
  }

  #know(): void {
    if (this.#isKnown) return;
    this.#isKnown = true;
    if (this.#waiting.length > 0) this.wake();
  }

  /** Whether nothing more will be written. */
  get #isOver(): boolean {
    return this.#ending || this.#abortDue;
  }

  /** Takes up to `most` bytes to send them on another connection, and calls `send` with them and their offset in the stream. */
  takePart(most: number, send: (offset: number, bytes: Buffer[]) => PartOnItsWay): boolean {
    const length = Math.min(this.#allowed(), most, this.#waiting.length);
    if (this.#closed || length === 0 || (length < PART_LEAST && !this.#isOver)) return false;
    const offset = this.#sent;
    const lane = send(offset, this.#take(length));
    // The connection may just have ended.
    if (this.#closed) return false;
    this.#lanes ??= new Set();
    this.#lanes.add(lane);
    this.#drained(false);
    return true;
  }

  /** A part has arrived. After the last one, the stream goes on where it was opened. */
  partArrived(lane: PartOnItsWay): void {
    if (this.#lanes?.delete(lane) && !this.#hasParts) this.wake();
  }

  /** A part is lost, or the peer sends nonsense: the stream ends at both ends. */
  fail(error: Error): void {
    if (!this.#closed) this.#cancel(error);
  }

  /** It has to find another way for what it has to send. */
  wake(): void {
    if (!this.#closed) this.host.ready(this);
  }

  get #hasToSend(): boolean {
    return this.#waiting.length > 0 || this.#synDue || (this.#ending && !this.#finSent) || this.#hasParts;
  }

  /** How many bytes may be sent now. */
  #allowed(): number {
    const isWorthwhile = this.#sendWindow >= Math.min(this.#waiting.length, WORTHWHILE_WINDOW);
    return isWorthwhile ? this.#sendWindow : 0;
  }

  receiveHeader(length: number): void {
    if (this.#finReceived && length > 0) throw new ProtocolViolation('data after the end of a stream');
    this.#know();
    this.#credit.use(length);
    this.#countFrame(length);
    if (!this.#aborted) return;
    this.#discarded += length;
    if (this.#discarded > MAX_DISCARDED) this.#cancel();
  }

  receivePayload(piece: Buffer): void {
    this.#receive(piece);
    if (this.#early !== null) this.#receiveEarly();
  }

  /** A part of the stream has arrived on another connection. @returns whether it can be one */
  receivePart(offset: number, bytes: ByteQueue): boolean {
    if (this.#closed || this.#aborted) return true;
    this.#early ??= new Map();
    this.#earlyBytes += bytes.length;
    const { window } = this.#credit;
    const isKnown = offset < this.#arrived || this.#early.has(offset);
    const areTooMany = this.#earlyBytes > window || this.#early.size > window / PART_LEAST;
    if (isKnown || areTooMany || this.#finReceived || bytes.length === 0) return false;
    this.#credit.widen();
    this.#early.set(offset, bytes);
    this.keep(memoryOfEarly(bytes.length));
    this.#receiveEarly();
    return true;
  }

  #receiveEarly(): void {
    for (;;) {
      const next = this.#early?.get(this.#arrived);
      if (next === undefined) return;
      const { length } = next;
      this.#early?.delete(this.#arrived);
      this.#earlyBytes -= length;
      this.keep(-memoryOfEarly(length));
      if (length > this.#credit.window) {
        this.fail(new ProtocolViolation('more data than the window of the stream allows'));
        return;
      }
      this.receiveHeader(length);
      for (const piece of next.take(length)) this.#receive(piece);
    }
  }

  #receive(piece: Buffer): void {
    if (this.#aborted || this.#closed) return;
    this.#arrived += piece.length;
    this.#credit.receive(piece.length);
    if (this.#mayPass(piece)) this.receiver.onData(piece);
    else this.#hold(piece);
    if (!this.#paused) this.#grantCredit();
  }

  receiveFin(): void {
    if (this.#closed || this.#finReceived) return;
    if (this.#earlyBytes > 0) {
      this.fail(new ProtocolViolation('the end of a stream before what precedes it'));
      return;
    }
    this.#finReceived = true;
    this.#credit.end();
    this.#credit.release();
    this.#deliver();
    if (!this.#aborted) this.receiver.onEnd();
    if (this.#finSent) this.#close();
  }

  receiveReset(): void {
    if (!this.#closed) this.#close(new Error('stream reset by the peer'));
  }

  receiveCredit(increment: number): void {
    this.#sendWindow = Math.min(this.#sendWindow + increment, this.host.largestWindow);
    this.#credited += increment;
    this.#know();
    this.#measureRoundTrip();
    this.#countTransfer(true);
    this.receiver.onCredit?.(this.#credited);
    if (this.#waiting.length > 0) this.host.ready(this);
  }

  /** Closes the stream because its connection has ended. */
  lose(error: Error): void {
    if (!this.#closed) this.#close(error);
  }

  #mayPass(piece: Buffer): boolean {
    if (this.#paused || this.#held !== null) return false;
    if (piece.length >= SMALL) return true;
    if (this.#smallPiecesTurn !== this.host.turn) {
      this.#smallPiecesTurn = this.host.turn;
      this.#smallPieces = 0;
    }
    this.#smallPieces += 1;
    return this.#smallPieces <= SMALL_PIECES_PER_TURN;
  }

  #hold(piece: Buffer): void {
    this.#held ??= new ByteQueue(0);
    this.#held.push(piece);
    this.host.memory.add(piece.length);
    if (!this.#paused) this.host.holds(this);
  }

  #deliver(): void {
    const held = this.#held;
    if (held === null) return;
    this.#held = null;
    this.host.memory.add(-held.length);
    for (const piece of held.take(held.length)) if (!this.#aborted) this.receiver.onData(piece);
  }

  #grantCredit(): void {
    if (!this.#closed && !this.#finReceived) this.#credit.grant();
  }

  #countFrame(bytes: number): void {
    this.#frames += 1;
    this.#frameBytes += bytes;
  }

  #countTransfer(isSent: boolean): void {
    const now = turnTime();
    const isSmall = this.#frameBytes < BULK_FRAME * this.#frames;
    if (isSmall || now - this.#countedAt > QUIET_MS) {
      this.#transferred = 0;
      this.#transferSince = now;
    }
    if (!isSmall) this.#transferred += this.#frameBytes;
    this.#frames = 0;
    this.#frameBytes = 0;
    this.#countedAt = now;
    const isSlow = now - this.#transferSince >= SLOW_BULK_MS;
    if (this.#transferred >= (isSlow ? SLOW_BULK : BULK)) this.host.carriesBulk(isSent);
  }

  #measureRoundTrip(): void {
    if (this.#openedAt === null) return;
    const now = performance.now();
    this.host.roundTrip.add(now - this.#openedAt, now);
    this.#openedAt = null;
  }

  /**
   * Resets the stream. An SDK task that waits for credit notices that only when credit wakes it: after the reset, since one
   * that wakes before may use the credit up and wait for ever.
   */
  #cancel(error?: Error): void {
    this.host.reset(this.id, MuxError.cancelled);
    this.host.windowIncrement(this.id, WINDOW);
    this.wasReset = !this.host.peerHonoursReset;
    this.#close(error);
  }

  #drop(): void {
    this.#credit.end();
    this.#credit.release();
    this.host.memory.add(-this.memory);
    this.#waiting.clear();
    this.#held = null;
    this.#kept = 0;
    this.#early = null;
    this.#earlyBytes = 0;
  }

  #close(error?: Error): void {
    this.#deliver();
    if (this.#closed) return;
    this.#closed = true;
    this.#drop();
    for (const lane of this.#lanes ?? []) lane.drop();
    this.#lanes = null;
    this.host.forget(this);
    this.receiver.onClosed?.(error);
  }
}
