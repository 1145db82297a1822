import type { Duplex } from 'node:stream';
import type { MemoryBudget, MemoryUser } from '../lib/memory-budget.ts';
import { trackBuffer } from '../lib/process/minor-gc.ts';
import { turnTime } from '../lib/time/loop-turn.ts';
import { TokenBucket } from '../lib/time/token-bucket.ts';
import { Channel, type ChannelHost } from './channel.ts';
import { CONNECTION_LIMITS, type ConnectionLimits, GLITCHES } from './connection-limits.ts';
import { RecentBytes, RoundTrip, StreamMemory } from './connection-meters.ts';
import { LARGEST_WINDOW } from './credit-window.ts';
import {
  FIRST_ID,
  FrameDecoder,
  type FrameHandler,
  FrameWriter,
  LAST_ID,
  MuxError,
  ProtocolViolation,
  type Role,
  SendQueue,
} from './frames.ts';
import { LinkUse } from './heartbeat.ts';
import { WINDOW } from './receive-credit.ts';

// Limits and the behaviour of SDKs were measured with `@ngrok/ngrok` 1.7.0 (Rust, muxado 0.5.0).

/** What a received chunk costs besides its bytes: chunks of one byte must not be cheap. */
const CHUNK_BYTES = 64;
/** Frames of one connection decoded in one turn of the event loop. Opening and resetting a stream cost as much as several. */
const FRAMES_PER_TURN = 512;
const FRAMES_PER_STREAM = 16;
const FRAMES_PER_RESET = 8;
/** Glitches that a stream counts as which an agent opens, and which is not served. */
const GLITCHES_PER_STREAM = 100;
/** The same for a part: when a client leaves, up to eight are on their way on each link. */
const GLITCHES_PER_PART = 10;
/** Time for the peer to close its side, in milliseconds; then the socket is destroyed. */
const CLOSE_GRACE_MS = 250;
/** How long the answer to a request may take that acknowledges it, in milliseconds; less than the system's delayed ACK. */
const ANSWER_MS = 20;
/** Agents never use this stream id, and ignore credit for it. */
const UNUSED_STREAM_ID = 1;

/** A connection is crowded when it has so many times as many bytes on their way as another one, and so many more. */
const CROWDED = 2;
const CROWDED_BYTES = 8_192;

export interface ConnectionUser {
  /** The peer has opened a stream. Set the channel's receiver before returning. */
  accept(channel: Channel): void;
  /** A stream has become bulk: small ones would rather use another connection. Called repeatedly. @param isSent by this end */
  carriesBulk?(isSent: boolean): void;
  /** Frames of streams that the gateway opened were sent. */
  sent?(): void;
  /** The connection has ended, and so have all its channels. Called once. */
  ended(reason: Error): void;
}

/** The connections of a session, as one of them sees them. */
export interface Siblings {
  /** The others that are open. */
  othersOf(connection: Connection): readonly Connection[];
  /** Whether transfers are spread over it, and another one is left to what is little. */
  isForBulk(connection: Connection): boolean;
  /** Sends what the stream of a connection has as parts on several; false: it does not. */
  spread(stream: Channel, connection: Connection): boolean;
}

/**
 * One end of a muxado connection: many streams over one socket. All frames of one event-loop turn are sent in one write.
 * After a turn that only read, a gateway's end sends a frame without effect: SDKs leave Nagle's algorithm on, and without it
 * their next small write waits some 40 ms for the delayed ACK. After a request, the answer does the same if it comes soon.
 */
export class Connection implements ChannelHost, FrameHandler, MemoryUser {
  readonly #decoder: FrameDecoder;
  readonly #out = new FrameWriter();
  readonly #channels = new Map<number, Channel>();
  readonly #queue: SendQueue;
  #inbound = 0;
  #flushDue = false;
  /** How often what was queued has left, and what had been read before that was passed on. */
  departures = 0;
  #readSinceFlush = false;
  /** Whether an answer is expected to acknowledge what was read. */
  #expectsAnswer = false;
  /** Channel of the DATA frame that is being decoded; null when the stream is closed or unknown. */
  #current: Channel | null = null;
  #currentId = 0;
  #currentLength = 0;
  #ended = false;
  /** Channels with received bytes to pass on at the end of the turn. */
  readonly #holding = new Set<Channel>();
  /** Bytes that were received but not decoded in this turn. */
  #rest: Buffer | null = null;
  #frames = 0;
  #glitches = new TokenBucket(GLITCHES, performance.now());
  #received = 0;
  #limits: ConnectionLimits;
  largestWindow = WINDOW;
  /** Whether a reset ends a stream at the peer. An SDK's task that waits to read does not notice one. */
  peerHonoursReset: boolean;
  /** Null: it is alone. */
  siblings: Siblings | null = null;
  /** Bytes of frames that were sent. */
  sentBytes = 0;
  readonly memory = new StreamMemory(this);
  readonly roundTrip = new RoundTrip();
  readonly #recent = new RecentBytes(this.roundTrip);
  turn = 0;
  /** When the last bytes arrived, in milliseconds of `performance.now()`. */
  lastReadAt = performance.now();
  /** When the last frames were sent. */
  lastSentAt = performance.now();
  readonly use = new LinkUse();
  /** Called when bytes have arrived, or are sent. */
  onTraffic: (() => void) | null = null;

  /**
   * @param role which end this is; a gateway's expects a peer that has not authenticated
   * @param openedId the id of the stream that was opened last
   */
  constructor(
    private readonly socket: Duplex,
    private readonly user: ConnectionUser,
    private readonly role: Role = 'gateway',
    private openedId = FIRST_ID[role] - 2,
  ) {
    this.#decoder = new FrameDecoder(this);
    this.#queue = new SendQueue(this.#out, socket);
    this.peerHonoursReset = role === 'agent';
    this.#limits = CONNECTION_LIMITS[role === 'agent' ? 'gateway' : 'unauthenticated'];
  }

  /** The peer is of this project too: windows grow up to what both support, resets end streams, no ACK has to be provoked. */
  extend(largestWindow: number): void {
    this.largestWindow = Math.max(WINDOW, Math.min(largestWindow, LARGEST_WINDOW));
    this.peerHonoursReset ||= this.largestWindow > WINDOW;
  }

  /** About how many bytes are on their way, in both directions. */
  get load(): number {
    return this.#recent.at(turnTime()) + this.socket.writableLength;
  }

  /**
   * Whether a new stream would get ahead on another connection, in spite of TCP's slow start there. One that ends loses its
   * streams one by one: others may be opened in their place meanwhile.
   */
  get isCrowded(): boolean {
    const others = this.siblings?.othersOf(this) ?? [];
    if (others.length === 0) return false;
    if (this.#ended || this.siblings?.isForBulk(this)) return true;
    const { load } = this;
    return others.some((other) => load > CROWDED * other.load + CROWDED_BYTES);
  }

  /** The stream with the id, if it is a client's. */
  clientStream(id: number): Channel | null {
    const channel = this.#channels.get(id);
    return channel?.maySpread ? channel : null;
  }

  start(): void {
    this.socket.on('data', (chunk: Buffer) => this.#read(chunk));
    this.socket.on('drain', () => this.#flush());
    this.socket.on('error', (error) => this.#end(error));
    this.socket.on('end', () => this.socket.destroy());
    this.socket.on('close', () => this.#end(new Error('connection closed by the peer')));
  }

  /** The agent has authenticated: lifts those limits; what it makes the gateway hold counts against the budget. */
  trust(budget: MemoryBudget, glitches = this.#glitches): void {
    this.#limits = CONNECTION_LIMITS.agent;
    this.#glitches = glitches;
    this.limitMemory(budget);
  }

  limitMemory(budget: MemoryBudget): void {
    this.memory.limit(budget);
  }

  get hasEnded(): boolean {
    return this.#ended;
  }

  /** Whether the peer has sent anything yet. */
  get isSilent(): boolean {
    return this.#received === 0;
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
    do this.openedId = this.openedId < LAST_ID ? this.openedId + 2 : FIRST_ID[this.role];
    while (this.#channels.has(this.openedId));
    this.#channels.set(this.openedId, channel);
    channel.open(this.openedId);
  }

  /** Sends what is queued, closes all channels, then the socket: destroys it if the peer does not close its side. */
  close(reason: Error): void {
    if (this.#ended) return;
    // After a revocation the queue holds the reasons why endpoints end.
    this.#send();
    this.socket.end();
    setTimeout(() => this.socket.destroy(), CLOSE_GRACE_MS).unref();
    this.#end(reason);
  }

  #read(chunk: Buffer): void {
    if (this.#ended) return;
    this.lastReadAt = performance.now();
    trackBuffer(chunk.length);
    this.#recent.add(chunk.length, turnTime());
    this.#received += chunk.length + CHUNK_BYTES;
    this.onTraffic?.();
    if (this.#received > this.#limits.received) this.close(new Error('too much sent before authentication'));
    else this.#decode(chunk);
  }

  #decode(chunk: Buffer): void {
    this.#readSinceFlush = true;
    this.#scheduleFlush();
    try {
      const decoded = this.#decoder.push(chunk);
      if (decoded === chunk.length || this.#ended) return;
      this.#rest = chunk.subarray(decoded);
      this.socket.pause();
    } catch (error) {
      if (!(error instanceof ProtocolViolation)) throw error;
      this.close(error);
    }
  }

  #count(frames: number): void {
    this.#frames += frames;
    if (this.#frames >= FRAMES_PER_TURN) this.#decoder.stop();
  }

  #countGlitches(frames: number): void {
    this.#glitches.take(frames, this.lastReadAt);
    if (this.#glitches.left(this.lastReadAt) >= 0) return;
    this.close(new ProtocolViolation('too many frames for streams that come to nothing'));
  }

  onData(streamId: number, length: number, syn: boolean): void {
    this.#count(syn ? FRAMES_PER_STREAM : 1);
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
      this.#count(FRAMES_PER_RESET);
      this.#countGlitches(1);
      this.reset(this.#currentId, MuxError.streamClosed);
    }
  }

  onReset(streamId: number): void {
    this.#count(FRAMES_PER_RESET);
    const channel = this.#channels.get(streamId);
    if (channel) channel.isServed = false;
    channel?.receiveReset();
  }

  onWindowIncrement(streamId: number, increment: number): void {
    this.#count(1);
    this.#channels.get(streamId)?.receiveCredit(increment);
  }

  onGoAway(): void {
    this.close(new Error('GOAWAY received'));
  }

  #accept(streamId: number): Channel {
    if (!this.#isPeers(streamId) || this.#channels.has(streamId)) {
      throw new ProtocolViolation('stream id not allowed');
    }
    if (this.#inbound >= this.#limits.streams) throw new ProtocolViolation('too many streams opened');
    const channel = new Channel(this);
    channel.id = streamId;
    this.#inbound += 1;
    this.#channels.set(streamId, channel);
    this.user.accept(channel);
    return channel;
  }

  #isPeers(streamId: number): boolean {
    return streamId % 2 !== FIRST_ID[this.role] % 2;
  }

  ready(channel: Channel): void {
    this.#queue.add(channel);
    this.#scheduleFlush();
  }

  carriesBulk(isSent: boolean): void {
    this.user.carriesBulk?.(isSent);
  }

  spread(channel: Channel): boolean {
    return this.siblings?.spread(channel, this) ?? false;
  }

  windowIncrement(streamId: number, increment: number): void {
    this.#out.windowIncrement(streamId, increment);
    this.#scheduleFlush();
  }

  reset(streamId: number, code: MuxError): void {
    this.#out.reset(streamId, code);
    this.#scheduleFlush();
  }

  answersSoon(): void {
    if (this.peerHonoursReset || this.#expectsAnswer) return;
    this.#expectsAnswer = true;
    const onLate = () => {
      this.#expectsAnswer = false;
      if (this.#readSinceFlush) this.#scheduleFlush();
    };
    setTimeout(onLate, ANSWER_MS).unref();
  }

  holds(channel: Channel): void {
    this.#holding.add(channel);
    this.#scheduleFlush();
  }

  /** Ends the stream that holds the most memory. */
  reclaim(): void {
    let most: Channel | null = null;
    for (const channel of this.#channels.values()) if (channel.memory > (most?.memory ?? 0)) most = channel;
    const reason = new Error('memory limit reached');
    // SDKs hang when a request of theirs is reset; requests have the agent's odd ids.
    if (most === null || (most.id % 2 === 1 && !most.receiver.onCut)) this.socket.destroy(reason);
    else most.cut(reason);
    this.#reportMemory();
  }

  forget(channel: Channel): void {
    this.#queue.delete(channel);
    this.#holding.delete(channel);
    if (!this.#channels.delete(channel.id) || !this.#isPeers(channel.id)) return;
    this.#inbound -= 1;
    // What ends with its connection is nobody's fault; a gateway's streams end with their clients.
    if (this.role !== 'gateway' || channel.isServed || this.#ended) return;
    this.#countGlitches(channel.isPart ? GLITCHES_PER_PART : GLITCHES_PER_STREAM);
  }

  #scheduleFlush(): void {
    if (this.#flushDue) return;
    this.#flushDue = true;
    setImmediate(() => this.#flush());
  }

  /** Ends a turn: passes on what was held, sends what is queued, and decodes on. */
  #flush(): void {
    this.#flushDue = false;
    if (this.#ended) return;
    this.turn += 1;
    for (const channel of this.#holding) {
      this.#holding.delete(channel);
      channel.deliver();
    }
    this.#send();
    this.#reportMemory();
    this.#frames = 0;
    if (!this.#ended) this.#decodeRest();
    this.departures += 1;
  }

  #decodeRest(): void {
    this.#decoder.resume();
    const rest = this.#rest;
    if (rest === null) return;
    this.#rest = null;
    this.#decode(rest);
    if (this.#rest === null) this.socket.resume();
  }

  #send(): void {
    const isData = this.#queue.send();
    if (this.#out.length === 0 && this.#readSinceFlush && !this.peerHonoursReset) {
      if (this.#expectsAnswer) return;
      this.#out.windowIncrement(UNUSED_STREAM_ID, 1);
    }
    this.#readSinceFlush = false;
    if (this.#out.length === 0) return;
    this.#expectsAnswer = false;
    this.lastSentAt = turnTime();
    this.#recent.add(this.#out.length, this.lastSentAt);
    this.sentBytes += this.#out.length;
    this.#out.writeTo(this.socket);
    this.onTraffic?.();
    if (isData) this.user.sent?.();
    if (this.socket.writableLength > this.#limits.unread) this.socket.destroy(new Error('the peer does not read'));
  }

  #reportMemory(): void {
    if (this.#ended) this.memory.release();
    else this.memory.report(this.socket.writableLength);
  }

  #end(reason: Error): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#decoder.stop();
    for (const channel of [...this.#channels.values()]) channel.lose(reason);
    this.#reportMemory();
    this.user.ended(reason);
  }
}
