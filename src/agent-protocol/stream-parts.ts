import { ByteQueue } from './byte-queue.ts';
import type { Channel, ChannelReceiver, PartOnItsWay } from './channel.ts';
import { MuxError, ProtocolViolation } from './frames.ts';

/** Bytes of a part at most. */
export const PART = 32_768;
/** The id of a part that only says that packets are lost. */
export const NO_STREAM = 0;
/** The number of the stream's link, its id, and the bytes of the stream before the part. */
const HEAD_BYTES = 4 + 4 + 6;

export function partHead(number: number, id: number, offset: number): Buffer {
  const head = Buffer.allocUnsafe(HEAD_BYTES);
  head.writeUInt32BE(number, 0);
  head.writeUInt32BE(id, 4);
  head.writeUIntBE(offset, 8, 6);
  return head;
}

/** A part on its way to the peer, which ends the part's own stream once all of it has arrived. */
export class DepartedPart implements ChannelReceiver, PartOnItsWay {
  #isAcknowledged = false;

  constructor(
    private readonly lane: Channel,
    private readonly stream: Channel,
    private readonly over: (isArrived: boolean) => void,
  ) {}

  drop(): void {
    this.lane.reset(MuxError.cancelled);
  }

  onData(): void {}

  onEnd(): void {
    this.#isAcknowledged = true;
  }

  onCut(reason: Error): void {
    this.stream.fail(reason);
    this.drop();
  }

  onClosed(error?: Error): void {
    const isArrived = error === undefined && this.#isAcknowledged;
    this.over(isArrived);
    if (isArrived) this.stream.partArrived(this);
    else this.stream.fail(error ?? new Error('a part of the stream was lost'));
  }
}

/** A part that the peer sends. It is passed on when all of it is there: what is lost with its link is lost as a whole. */
export class ArrivingPart implements ChannelReceiver {
  #head: Buffer = Buffer.alloc(0);
  readonly #bytes = new ByteQueue(0);
  #stream: Channel | null = null;
  #isComplete = false;

  constructor(
    private readonly lane: Channel,
    private readonly find: (number: number, id: number) => Channel | null,
  ) {}

  onData(payload: Buffer): void {
    const ofHead = payload.subarray(0, HEAD_BYTES - this.#head.length);
    if (ofHead.length > 0) this.#head = Buffer.concat([this.#head, ofHead]);
    if (this.#head.length < HEAD_BYTES) return;
    if (ofHead.length > 0) this.#find();
    const rest = payload.subarray(ofHead.length);
    if (this.#stream === null) this.lane.abort();
    else if (this.#bytes.length + rest.length > PART) this.#fail(new ProtocolViolation('a part that is too long'));
    else if (rest.length > 0) {
      this.#bytes.push(rest);
      this.lane.keep(rest.length);
    }
  }

  onEnd(): void {
    this.#isComplete = true;
    const offset = this.#head.length < HEAD_BYTES ? null : this.#head.readUIntBE(8, 6);
    if (this.#stream === null || offset === null) this.lane.abort();
    else if (this.#stream.receivePart(offset, this.#bytes)) this.lane.end();
    else this.#fail(new ProtocolViolation('a part that does not belong there'));
  }

  onCut(reason: Error): void {
    this.#fail(reason);
  }

  onClosed(error?: Error): void {
    if (error !== undefined && !this.#isComplete) this.#stream?.fail(error);
  }

  #find(): void {
    this.lane.isPart = true;
    this.#stream = this.find(this.#head.readUInt32BE(0), this.#head.readUInt32BE(4));
    if (this.#stream !== null) this.lane.isServed = true;
  }

  #fail(reason: Error): void {
    this.#isComplete = true;
    this.lane.reset(MuxError.cancelled);
    this.#stream?.fail(reason);
  }
}
