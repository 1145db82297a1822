import type { ByteChannel, ByteReceiver } from '../../agent-protocol/byte-channel.ts';
import type { Channel, ChannelReceiver } from '../../agent-protocol/channel.ts';
import type { Connection } from '../../agent-protocol/connection.ts';
import { ClientShares } from '../../lib/network/client-shares.ts';
import { turnTime } from '../../lib/time/loop-turn.ts';
import { EndpointTraffic } from '../endpoints/online-endpoint.ts';

/** Progress of a stream: queued here, sent, header credited by the agent, reacted to by the agent. */
type Stage = 'waiting' | 'offered' | 'accepted' | 'answered';

export interface GatedChannelObserver {
  /** The agent has consumed `total` bytes. Not called in the stage `answered`. */
  credited(channel: GatedChannel, total: number): void;
  /** The agent has sent something. Called before the stage is `answered`. */
  answered(channel: GatedChannel): void;
  /** The first bytes were written while the stage is `waiting`. */
  dataWritten(channel: GatedChannel): void;
  /** The stream no longer counts towards the agent's limit. */
  closed(channel: GatedChannel): void;
}

export class Lane {
  /** Whether the agent has registered the listener; it drops streams opened earlier. */
  ready = false;
  closed = false;
  /** Streams sent to the agent without a reaction so far, in order of sending. */
  readonly unanswered = new Set<GatedChannel>();
  readonly streams = new Set<GatedChannel>();
  readonly shares = new ClientShares<GatedChannel>();
  readonly traffic = new EndpointTraffic();
  #onEmpty: (() => void) | null = null;

  /** @param upstream as the agent reports it */
  constructor(readonly upstream = '') {}

  /** @param drained called each time when no stream is left from now on, unless it is closed */
  drain(drained: () => void): void {
    this.#onEmpty = drained;
  }

  /** To be called when a stream has left. */
  streamLeft(): void {
    if (this.streams.size === 0 && !this.closed) this.#onEmpty?.();
  }
}

const NOBODY: ByteReceiver = { onData() {}, onEnd() {} };

export class GatedChannel implements ByteChannel, ChannelReceiver {
  receiver: ByteReceiver = NOBODY;
  stage: Stage = 'waiting';
  hasData = false;
  /** Whether its client has ended its side, and so has perhaps left. */
  hasEnded = false;
  /** Since when the agent has yet to end it though the gateway has, in milliseconds of `performance.now()`. */
  abandonedAt: number | null = null;
  /** When it was made, and when bytes last moved, in milliseconds of `performance.now()`. */
  readonly madeAt = turnTime();
  movedAt = this.madeAt;

  /** @param channel not open yet, with a preamble of so many bytes written; this becomes its receiver */
  constructor(
    readonly connection: Connection,
    readonly channel: Channel,
    readonly lane: Lane,
    readonly preamble: number,
    public client: string,
    private readonly observer: GatedChannelObserver,
  ) {
    channel.receiver = this;
  }

  /** Whether the gateway has ended it with RST, of which the agent sends no confirmation. */
  get wasReset(): boolean {
    return this.channel.wasReset;
  }

  get isCrowded(): boolean {
    return this.connection.isCrowded;
  }

  get departures(): number {
    return this.connection.departures;
  }

  /** Since when its client has perhaps left and nothing has moved, in milliseconds of `performance.now()`; infinite: it is there. */
  get leftAt(): number {
    return this.abandonedAt ?? (this.hasEnded ? this.movedAt : Number.POSITIVE_INFINITY);
  }

  usedBy(client: string): void {
    if (client === this.client || !this.lane.streams.has(this)) return;
    this.lane.shares.delete(this.client, this);
    this.client = client;
    this.lane.shares.add(client, this);
  }

  /** Writes bytes that the agent has to read apart from those that follow. */
  writeApart(bytes: Buffer): void {
    this.write(bytes);
    this.channel.endFrame();
  }

  write(bytes: Buffer): boolean {
    this.movedAt = turnTime();
    this.lane.traffic.received += bytes.length;
    const room = this.channel.write(bytes);
    if (this.stage === 'waiting' && !this.hasData) {
      this.hasData = true;
      this.observer.dataWritten(this);
    }
    return room;
  }

  end(): void {
    this.hasEnded = true;
    this.channel.end();
  }

  abort(): void {
    this.receiver = NOBODY;
    this.channel.abort();
    if (!this.channel.closed) this.abandonedAt ??= turnTime();
  }

  pause(): void {
    this.channel.pause();
  }

  resume(): void {
    this.channel.resume();
  }

  keep(bytes: number): void {
    this.channel.keep(bytes);
  }

  /** Aborts the stream and passes the reason to the receiver. */
  cut(reason: Error): void {
    const { receiver } = this;
    this.abort();
    receiver.onClosed?.(reason);
  }

  onData(payload: Buffer): void {
    this.movedAt = turnTime();
    this.lane.traffic.sent += payload.length;
    if (this.stage !== 'answered') this.observer.answered(this);
    this.receiver.onData(payload);
  }

  onEnd(): void {
    if (this.stage !== 'answered') this.observer.answered(this);
    this.receiver.onEnd();
  }

  onDrain(): void {
    this.receiver.onDrain?.();
  }

  onCredit(total: number): void {
    if (this.stage !== 'answered') this.observer.credited(this, total);
  }

  /** With FIN: an SDK that waits for the upstream does not notice a reset, and the stream keeps its slot there. */
  onCut(reason: Error): void {
    this.cut(reason);
  }

  onClosed(error?: Error): void {
    this.observer.closed(this);
    this.receiver.onClosed?.(error);
  }
}
