import type { Duplex } from 'node:stream';
import { trackBuffer } from '../lib/minor-gc.ts';
import { Channel, type ChannelHost } from './channel.ts';
import { FrameDecoder, type FrameHandler, FrameWriter, MuxError, ProtocolViolation } from './frames.ts';

// Limits and the behaviour of SDKs were measured with `@ngrok/ngrok` 1.7.0 (Rust, muxado 0.5.0).

/** Bytes in the socket's buffer at which streams have to wait. */
const OUTPUT_HIGH_WATER = 262_144;
/** The buffer only exceeds this when the peer provokes answers and does not read them. */
const OUTPUT_LIMIT = 8 * 1_048_576;
/** Streams that the peer may have open; an SDK has one RPC and one heartbeat stream at a time. */
export const MAX_INBOUND = 64;
/** Time for the peer to close its side, in milliseconds; then the socket is destroyed. */
const CLOSE_GRACE_MS = 250;
/** Agents never use this stream id, and ignore credit for it. */
const UNUSED_STREAM_ID = 1;

export interface ConnectionUser {
  /** The peer has opened a stream. Set the channel's receiver before returning. */
  accept(channel: Channel): void;
  /** The connection has ended, and so have all its channels. Called once. */
  ended(reason: Error): void;
}

/**
 * The server side of a muxado connection: many streams over one socket.
 *
 * All frames of one event-loop turn are sent in one write. After a turn that only read, the connection sends a frame
 * without effect: SDKs leave Nagle's algorithm on, and without it their next small write waits some 40 ms for the
 * delayed ACK.
 */
export class Connection implements ChannelHost, FrameHandler {
  readonly #decoder: FrameDecoder;
  readonly #out = new FrameWriter();
  readonly #channels = new Map<number, Channel>();
  readonly #ready = new Set<Channel>();
  #nextId = 2;
  #inbound = 0;
  #flushDue = false;
  #readSinceFlush = false;
  /** Channel of the DATA frame that is being decoded; null when the stream is closed or unknown. */
  #current: Channel | null = null;
  #currentId = 0;
  #currentLength = 0;
  #ended = false;
  /** When the last bytes arrived, in milliseconds of `performance.now()`. */
  lastReadAt = performance.now();
  /** Streams that the peer may have open. */
  maxInbound = MAX_INBOUND;

  constructor(
    private readonly socket: Duplex,
    private readonly user: ConnectionUser,
  ) {
    this.#decoder = new FrameDecoder(this);
  }

  start(): void {
    this.socket.on('data', (chunk: Buffer) => this.#read(chunk));
    this.socket.on('drain', () => this.#flush());
    this.socket.on('error', (error) => this.#end(error));
    this.socket.on('end', () => this.socket.destroy());
    this.socket.on('close', () => this.#end(new Error('connection closed by the peer')));
  }

  /** Creates a stream for {@link open}. Bytes written to it earlier are sent when it opens. */
  channel(): Channel {
    return new Channel(this);
  }

  open(channel: Channel): void {
    if (this.#ended) {
      channel.lose(new Error('the session has ended'));
      return;
    }
    const id = this.#nextId;
    this.#nextId += 2;
    this.#channels.set(id, channel);
    channel.open(id);
  }

  /** Sends what is queued, closes all channels, then the socket: destroys it if the peer does not close its side. */
  close(reason: Error): void {
    if (this.#ended) return;
    // After a revocation the queue holds the reasons why endpoints end.
    this.#flush();
    this.socket.end();
    setTimeout(() => this.socket.destroy(), CLOSE_GRACE_MS).unref();
    this.#end(reason);
  }

  #read(chunk: Buffer): void {
    if (this.#ended) return;
    this.lastReadAt = performance.now();
    trackBuffer(chunk.length);
    this.#readSinceFlush = true;
    this.#scheduleFlush();
    try {
      this.#decoder.push(chunk);
    } catch (error) {
      if (!(error instanceof ProtocolViolation)) throw error;
      this.close(error);
    }
  }

  onData(streamId: number, length: number, syn: boolean): void {
    const channel = syn ? this.#accept(streamId) : this.#channels.get(streamId);
    this.#current = channel ?? null;
    this.#currentId = streamId;
    this.#currentLength = length;
    channel?.receiveHeader(length);
  }

  onPayload(piece: Buffer): void {
    this.#current?.receivePayload(piece);
  }

  onDataEnd(fin: boolean): void {
    const channel = this.#current;
    this.#current = null;
    if (channel) {
      if (fin) channel.receiveFin();
    } else if (this.#currentLength > 0) {
      this.reset(this.#currentId, MuxError.streamClosed);
    }
  }

  onReset(streamId: number): void {
    this.#channels.get(streamId)?.receiveReset();
  }

  onWindowIncrement(streamId: number, increment: number): void {
    this.#channels.get(streamId)?.receiveCredit(increment);
  }

  onGoAway(): void {
    this.close(new Error('GOAWAY received'));
  }

  #accept(streamId: number): Channel {
    if (streamId % 2 === 0 || this.#channels.has(streamId)) throw new ProtocolViolation('stream id not allowed');
    if (this.#inbound >= this.maxInbound) throw new ProtocolViolation('too many streams opened');
    const channel = new Channel(this);
    channel.id = streamId;
    this.#inbound += 1;
    this.#channels.set(streamId, channel);
    this.user.accept(channel);
    return channel;
  }

  ready(channel: Channel): void {
    this.#ready.add(channel);
    this.#scheduleFlush();
  }

  windowIncrement(streamId: number, increment: number): void {
    this.#out.windowIncrement(streamId, increment);
    this.#scheduleFlush();
  }

  reset(streamId: number, code: MuxError): void {
    this.#out.reset(streamId, code);
    this.#scheduleFlush();
  }

  forget(channel: Channel): void {
    this.#ready.delete(channel);
    if (this.#channels.delete(channel.id) && channel.id % 2 === 1) this.#inbound -= 1;
  }

  #scheduleFlush(): void {
    if (this.#flushDue) return;
    this.#flushDue = true;
    setImmediate(() => this.#flush());
  }

  #flush(): void {
    this.#flushDue = false;
    if (this.#ended) return;
    for (const channel of this.#ready) {
      if (this.#out.length + this.socket.writableLength >= OUTPUT_HIGH_WATER) break;
      this.#ready.delete(channel);
      if (channel.flushInto(this.#out)) this.#ready.add(channel);
    }
    if (this.#out.length === 0 && this.#readSinceFlush) this.#out.windowIncrement(UNUSED_STREAM_ID, 1);
    this.#readSinceFlush = false;
    if (this.#out.length === 0) return;
    this.#writeOut();
    if (this.socket.writableLength > OUTPUT_LIMIT) this.socket.destroy(new Error('the peer does not read'));
  }

  #writeOut(): void {
    const [first, ...others] = this.#out.take();
    if (others.length === 0) {
      this.socket.write(first);
      return;
    }
    this.socket.cork();
    this.socket.write(first);
    for (const piece of others) this.socket.write(piece);
    this.socket.uncork();
  }

  #end(reason: Error): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#decoder.stop();
    for (const channel of [...this.#channels.values()]) channel.lose(reason);
    this.user.ended(reason);
  }
}
