import type { ByteChannel, ByteReceiver } from '../../agent-protocol/byte-channel.ts';
import type { Channel, ChannelReceiver } from '../../agent-protocol/channel.ts';

/** How far a stream has come: held back here, sent, its header taken by the agent, taken out of the agent's queue. */
export type Stage = 'waiting' | 'offered' | 'accepted' | 'answered';

/** What the gate that made the channel wants to know of it. */
export interface GatedChannelObserver {
  /** The agent has consumed `total` bytes of ours. Not called once the stage is `answered`. */
  credited(channel: GatedChannel, total: number): void;
  /** The agent has sent something. Called once at most, while the stage is another one than `answered`. */
  answered(channel: GatedChannel): void;
  /** There is something to be sent. Called once at most, while the stage is `waiting`. */
  talking(channel: GatedChannel): void;
  /** The stream no longer counts at the agent. */
  gone(channel: GatedChannel): void;
}

/** The streams of one listener of the agent. */
export class Lane {
  /** Whether the agent has registered the listener; a stream opened earlier would be dropped. */
  ready = false;
  /** Whether the listener is gone, for good. */
  over = false;
  /** Streams that the agent has got and shown no reaction to, in the order in which it got them. */
  readonly unanswered = new Set<GatedChannel>();
  readonly streams = new Set<GatedChannel>();
}

const NOBODY: ByteReceiver = { onData() {}, onEnd() {} };

/** A stream to a listener of the agent, watched by the gate. */
export class GatedChannel implements ByteChannel, ChannelReceiver {
  receiver: ByteReceiver = NOBODY;
  /** Kept by the observer. */
  stage: Stage = 'waiting';
  /** Whether there was something to be sent before the agent got the stream. */
  talks = false;
  readonly channel: Channel;
  readonly lane: Lane;
  /** Bytes that precede what the user writes: type and header of the stream. */
  readonly preamble: number;
  readonly #observer: GatedChannelObserver;

  /** @param channel not open yet, with the preamble written to it; this becomes its receiver */
  constructor(channel: Channel, lane: Lane, preamble: number, observer: GatedChannelObserver) {
    this.channel = channel;
    this.lane = lane;
    this.preamble = preamble;
    this.#observer = observer;
    channel.receiver = this;
  }

  write(bytes: Buffer): boolean {
    const room = this.channel.write(bytes);
    if (this.stage === 'waiting' && !this.talks) {
      this.talks = true;
      this.#observer.talking(this);
    }
    return room;
  }

  end(): void {
    this.channel.end();
  }

  abort(): void {
    this.receiver = NOBODY;
    this.channel.abort();
  }

  pause(): void {
    this.channel.pause();
  }

  resume(): void {
    this.channel.resume();
  }

  /** Ends both directions; the receiver is told why. */
  cut(reason: Error): void {
    const { receiver } = this;
    this.abort();
    receiver.onClosed?.(reason);
  }

  onData(payload: Buffer): void {
    if (this.stage !== 'answered') this.#observer.answered(this);
    this.receiver.onData(payload);
  }

  onEnd(): void {
    if (this.stage !== 'answered') this.#observer.answered(this);
    this.receiver.onEnd();
  }

  onDrain(): void {
    this.receiver.onDrain?.();
  }

  onCredit(total: number): void {
    if (this.stage !== 'answered') this.#observer.credited(this, total);
  }

  onClosed(error?: Error): void {
    this.#observer.gone(this);
    this.receiver.onClosed?.(error);
  }
}
