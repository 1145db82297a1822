import { ByteQueue } from './byte-queue.ts';
import type { Channel, ChannelReceiver, Inlet } from './channel.ts';
import type { Connection } from './connection.ts';
import { ProtocolViolation } from './frames.ts';
import { readSegment, SEGMENT_HEADER, type Segment } from './segments.ts';

/** Lanes of a stream: one on each link, and those that are ending. */
const MAX_LANES = 64;
/** What keeping a segment takes besides its bytes. */
const SEGMENT_COST = 128;

/**
 * Puts the segments of a stream in order. What comes too early is kept, and its lane gets no credit for it: a lane holds no more
 * than its window. A lane that is lost with its link fails the stream, unless the lane has ended and all of it was passed on.
 */
export class SpreadInlet implements Inlet {
  readonly #lanes = new Set<Lane>();
  #isDelivering = false;
  #isOver = false;

  constructor(
    private readonly stream: Channel,
    private readonly over: () => void,
  ) {
    stream.receiveFrom(this);
  }

  get isActive(): boolean {
    return this.#lanes.size > 0;
  }

  uses(connection: Connection): boolean {
    return [...this.#lanes].some((lane) => lane.isOn(connection));
  }

  accept(channel: Channel): ChannelReceiver | null {
    if (this.#isOver || this.#lanes.size >= MAX_LANES) return null;
    const lane = new Lane(channel, {
      arrived: () => this.deliver(),
      failed: (error) => this.stream.fail(error),
      left: () => void this.#lanes.delete(lane),
    });
    this.#lanes.add(lane);
    return lane;
  }

  deliver(): void {
    // A receiver that resumes the stream gets the rest from the loop below.
    if (this.#isDelivering) return;
    this.#isDelivering = true;
    try {
      while (!this.#isOver && !this.stream.isPaused && this.#deliverNext());
    } finally {
      this.#isDelivering = false;
    }
  }

  closed(isLost: boolean): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const lane of this.#lanes) lane.close(isLost);
    this.#lanes.clear();
    this.over();
  }

  #deliverNext(): boolean {
    const { received } = this.stream;
    for (const lane of this.#lanes) {
      const { next } = lane;
      if (next === null || next.offset > received) continue;
      if (next.offset < received) {
        this.stream.fail(new ProtocolViolation('a segment has bytes that have arrived already'));
        return false;
      }
      for (const piece of lane.take()) this.stream.receiveNext(piece);
      if (next.length > 0) return true;
      if (next.end === 'fin') this.stream.receiveFin();
      if (next.end === 'reset') this.stream.receiveReset();
      return true;
    }
    return false;
  }
}

/** The segments that one lane has brought. */
class Lane implements ChannelReceiver {
  readonly #bytes = new ByteQueue(0);
  readonly #segments: Segment[] = [];
  /** Of the last segment, bytes that have yet to arrive; the header when there is none. */
  #missing = 0;
  #header: Buffer = Buffer.alloc(0);
  /** Bytes that it keeps, as its channel counts them. */
  #kept = 0;
  /** Whether all of it has arrived. */
  #hasEnded = false;
  #isClosed = false;

  constructor(
    private readonly channel: Channel,
    private readonly inlet: { arrived(): void; failed(error: Error): void; left(): void },
  ) {
    channel.defer();
  }

  isOn(connection: Connection): boolean {
    return this.channel.isOf(connection);
  }

  /** What comes next; null: nothing has arrived of it. */
  get next(): Segment | null {
    const [first] = this.#segments;
    if (first === undefined) return null;
    if (first.length === 0) return first;
    return this.#bytes.length > 0 ? first : null;
  }

  /** Removes as much of it as has arrived. */
  take(): Buffer[] {
    const first = this.#segments[0] as Segment;
    const length = Math.min(first.length, this.#bytes.length);
    const pieces = length > 0 ? this.#bytes.take(length) : [];
    first.offset += length;
    first.length -= length;
    const isWhole = first.length === 0;
    if (isWhole) this.#segments.shift();
    this.#keep(-length - (isWhole ? SEGMENT_COST : 0));
    this.channel.consumed(length + (isWhole ? SEGMENT_HEADER : 0));
    if (this.#hasEnded) this.#endWhenPassedOn();
    return pieces;
  }

  onData(payload: Buffer): void {
    if (this.#isClosed) return;
    let at = 0;
    while (at < payload.length) {
      if (this.#missing > 0) {
        const piece = payload.subarray(at, at + this.#missing);
        this.#missing -= piece.length;
        at += piece.length;
        this.#bytes.push(piece);
        this.#keep(piece.length);
      } else {
        const part = payload.subarray(at, at + SEGMENT_HEADER - this.#header.length);
        at += part.length;
        this.#header = Buffer.concat([this.#header, part]);
        if (this.#header.length === SEGMENT_HEADER && !this.#begin()) return;
      }
    }
    this.inlet.arrived();
  }

  onEnd(): void {
    const isWhole = this.#missing === 0 && this.#header.length === 0;
    this.#hasEnded = isWhole;
    if (isWhole) this.#endWhenPassedOn();
    else this.#fail('a lane has ended within a segment');
  }

  onClosed(error?: Error): void {
    if (error && !this.#hasEnded) this.inlet.failed(error);
  }

  onCut(reason: Error): void {
    this.inlet.failed(reason);
  }

  close(isLost: boolean): void {
    this.#isClosed = true;
    this.channel.receiver = { onData() {}, onEnd: () => this.channel.end() };
    this.#keep(-this.#kept);
    this.#bytes.clear();
    this.#segments.length = 0;
    // Otherwise its peer is about to end it.
    if (isLost) this.channel.abort();
    else if (this.#hasEnded) this.channel.end();
  }

  #begin(): boolean {
    const segment = readSegment(this.#header);
    this.#header = Buffer.alloc(0);
    if (segment === null) {
      this.#fail('malformed segment');
      return false;
    }
    this.#segments.push(segment);
    this.#missing = segment.length;
    this.#keep(SEGMENT_COST);
    return true;
  }

  #keep(bytes: number): void {
    this.#kept += bytes;
    this.channel.keep(bytes);
  }

  #fail(reason: string): void {
    this.inlet.failed(new ProtocolViolation(reason));
  }

  /** Until then, the channel counts what it keeps. */
  #endWhenPassedOn(): void {
    if (this.#segments.length > 0) return;
    this.inlet.left();
    this.channel.end();
  }
}
