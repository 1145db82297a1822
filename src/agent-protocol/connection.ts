import type { Duplex } from 'node:stream';
import type { MemoryBudget, MemoryUser } from '../lib/memory-budget.ts';
import { trackBuffer } from '../lib/process/minor-gc.ts';
import { turnTime } from '../lib/time/loop-turn.ts';
import type { BulkMeter } from './bulk-meter.ts';
import { Channel, type ChannelHost } from './channel.ts';
import { AGENT_LIMITS, type ConnectionLimits, GATEWAY_LIMITS, UNAUTHENTICATED_LIMITS } from './connection-limits.ts';
import { FrameAllowance } from './frame-allowance.ts';
import { FrameDecoder, type FrameHandler, FrameWriter, MuxError, ProtocolViolation } from './frames.ts';
import { LARGEST_WINDOW } from './growing-window.ts';
import { HeldMemory } from './held-memory.ts';
import { WINDOW } from './receive-credit.ts';
import { RoundTrip } from './round-trip.ts';
import { SendQueue } from './send-queue.ts';
import { FIRST_ID, isGateways, type Role } from './stream-ids.ts';

// Limits and the behaviour of SDKs were measured with `@ngrok/ngrok` 1.7.0 (Rust, muxado 0.5.0).

/** What a received chunk costs besides its bytes: chunks of one byte must not be cheap. */
const CHUNK_BYTES = 64;
/**
 * Frames of one connection that are decoded in one turn of the event loop; the rest waits until the other connections
 * have had theirs. Opening and resetting a stream cost as much as several frames.
 */
const FRAMES_PER_TURN = 512;
const FRAMES_PER_STREAM = 16;
const FRAMES_PER_RESET = 8;
/** Frames that a stream counts as which an agent opens, and which is not served. */
const USELESS_FRAMES_PER_STREAM = 100;
/** Time for the peer to close its side, in milliseconds; then the socket is destroyed. */
const CLOSE_GRACE_MS = 250;
/** Agents never use this stream id, and ignore credit for it. */
const UNUSED_STREAM_ID = 1;

export interface ConnectionUser {
  /** The peer has opened a stream. Set the channel's receiver before returning. */
  accept(channel: Channel): void;
  /** Frames of streams that the gateway opened were sent. */
  sent?(): void;
  /** A bulk stream slows others down that a further connection would separate. Called repeatedly. */
  wantsBulkConnection?(): void;
  /** The connection has ended, and so have all its channels. Called once. */
  ended(reason: Error): void;
}

/**
 * One end of a muxado connection: many streams over one socket.
 *
 * All frames of one event-loop turn are sent in one write. After a turn that only read, a gateway's end sends a frame
 * without effect: SDKs leave Nagle's algorithm on, and without it their next small write waits some 40 ms for the
 * delayed ACK.
 */
export class Connection implements ChannelHost, FrameHandler, MemoryUser {
  readonly #decoder: FrameDecoder;
  readonly #out = new FrameWriter();
  readonly #channels = new Map<number, Channel>();
  readonly #queue: SendQueue;
  #nextId: number;
  #inbound = 0;
  #flushDue = false;
  #readSinceFlush = false;
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
  #useless = new FrameAllowance();
  #received = 0;
  #limits: ConnectionLimits;
  #largestWindow = WINDOW;
  /** The session's other connection, which carries bulk streams. */
  #bulk: Connection | null = null;
  /** Whether streams may move there. */
  #movesBulk = false;
  /** Of a connection for bulk: the one whose streams it carries. */
  #main: Connection | null = null;
  /** What arrived here before the notice, on the other connection, that its stream moves here. Decoding waits for that. */
  #early: EarlyFrame | null = null;
  /** Of the session: a connection for bulk shares its main connection's. */
  #memory = new HeldMemory(this);
  readonly roundTrip = new RoundTrip();
  turn = 0;
  /** When the last bytes arrived, in milliseconds of `performance.now()`. */
  lastReadAt = performance.now();

  /** @param role which end this is; a gateway's expects a peer that has not authenticated */
  constructor(
    private readonly socket: Duplex,
    private readonly user: ConnectionUser,
    private readonly role: Role = 'gateway',
  ) {
    this.#decoder = new FrameDecoder(this);
    this.#queue = new SendQueue(this.#out, socket, (channel, now) => this.#moveOut(channel, now));
    this.#nextId = FIRST_ID[role];
    this.#limits = role === 'agent' ? GATEWAY_LIMITS : UNAUTHENTICATED_LIMITS;
  }

  /** Whether a reset ends a stream at the peer. An SDK's task that waits to read does not notice one. */
  get peerHonoursReset(): boolean {
    return this.role === 'agent' || this.#isExtended;
  }

  get largestWindow(): number {
    return this.#largestWindow;
  }

  get #isExtended(): boolean {
    return this.#largestWindow > WINDOW;
  }

  /**
   * The peer is of this project too: windows grow beyond that of the protocol, resets end streams, and nothing has to be
   * done against delayed acknowledgements.
   *
   * @param largestWindow bytes, that both support
   */
  extend(largestWindow: number): void {
    this.#largestWindow = Math.max(WINDOW, Math.min(largestWindow, LARGEST_WINDOW));
  }

  /**
   * The peer may from now on move its bulk streams to the given connection, which replaces an earlier one.
   *
   * @param bulk of the same session, and started
   */
  attachBulk(bulk: Connection): void {
    this.#bulk?.close(new Error('another connection for bulk was opened'));
    this.#bulk = bulk;
    bulk.#main = this;
    bulk.#largestWindow = this.#largestWindow;
    bulk.#limits = this.#limits;
    bulk.#useless = this.#useless;
    this.#memory.adopt(bulk.#memory);
    bulk.#memory = this.#memory;
  }

  /** The peer knows the connection for bulk: from now on, bulk streams move there. */
  moveBulk(): void {
    this.#movesBulk = this.#bulk !== null;
  }

  /** Whether streams are on the connection for bulk. */
  get usesBulk(): boolean {
    return this.#bulk !== null && [...this.#channels.values()].some(({ needsBulk }) => needsBulk);
  }

  start(): void {
    this.socket.on('data', (chunk: Buffer) => this.#read(chunk));
    this.socket.on('drain', () => this.#flush());
    this.socket.on('error', (error) => this.#end(error));
    this.socket.on('end', () => this.socket.destroy());
    this.socket.on('close', () => this.#end(new Error('connection closed by the peer')));
  }

  /** The agent has authenticated: lifts those limits; what it makes the gateway hold counts against the budget. */
  trust(budget: MemoryBudget, useless = new FrameAllowance()): void {
    this.#limits = AGENT_LIMITS;
    this.#useless = useless;
    this.limitMemory(budget);
  }

  /** From now on, the bytes held for streams count against the budget. */
  limitMemory(budget: MemoryBudget): void {
    this.#memory.limit(budget);
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
    const id = this.#nextId;
    this.#nextId += 2;
    this.#channels.set(id, channel);
    channel.open(id);
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
    this.#received += chunk.length + CHUNK_BYTES;
    if (this.#received > this.#limits.received) this.close(new Error('too much sent before authentication'));
    else this.#decode(chunk);
  }

  #decode(chunk: Buffer): void {
    this.#readSinceFlush = true;
    this.#scheduleFlush();
    try {
      this.#handleEarly();
      const decoded = this.#decoder.push(chunk);
      if ((decoded === chunk.length && this.#early === null) || this.#ended) return;
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

  #countUseless(frames: number): void {
    if (!this.#useless.take(frames, this.lastReadAt))
      this.close(new ProtocolViolation('too many frames for streams that come to nothing'));
  }

  onData(streamId: number, length: number, syn: boolean): void {
    this.#count(syn ? FRAMES_PER_STREAM : 1);
    const channel = syn ? this.#accept(streamId) : this.#find(streamId);
    this.#current = channel ?? null;
    this.#currentId = streamId;
    this.#currentLength = length;
    if (channel) this.#inOrder(channel, () => channel.receiveHeader(length));
  }

  /** Whether frames with this id belong to a stream of the other connection: only the gateway's streams carry bulk. */
  #carries(streamId: number): boolean {
    return this.#main !== null && isGateways(streamId);
  }

  #find(streamId: number): Channel | undefined {
    return ((this.#carries(streamId) ? this.#main : null) ?? this).#channels.get(streamId);
  }

  /** Handles the start of a frame once all earlier ones of its stream were handled. */
  #inOrder(channel: Channel, handle: () => void): void {
    const isHere = this.#carries(channel.id) === channel.arrivesOnBulk;
    if (isHere) handle();
    else if (channel.arrivesOnBulk) throw new ProtocolViolation('a frame of a stream that has moved elsewhere');
    else {
      this.#early = { channel, handle, fin: null };
      this.#decoder.stop();
    }
  }

  /** Handles the frame that came too early: its stream has moved here meanwhile, or has closed. */
  #handleEarly(): void {
    const early = this.#early;
    if (early === null) return;
    this.#early = null;
    if (early.channel.closed) this.#current = null;
    else early.handle();
    if (early.fin !== null) this.onDataEnd(early.fin, false);
  }

  onPayload(piece: Buffer): void {
    this.#current?.receivePayload(piece);
  }

  onDataEnd(fin: boolean, moved: boolean): void {
    if (this.#early !== null) {
      this.#early.fin = fin;
      return;
    }
    const channel = this.#current;
    this.#current = null;
    if (channel) {
      if (fin) channel.receiveFin();
      else if (moved) this.#moveIn(channel);
    } else if (this.#currentLength > 0) {
      this.#count(FRAMES_PER_RESET);
      this.#countUseless(1);
      if (!this.#carries(this.#currentId)) this.reset(this.#currentId, MuxError.streamClosed);
    }
  }

  /** Further data of the stream comes on the connection for bulk. */
  #moveIn(channel: Channel): void {
    if (!this.#isExtended || !isGateways(channel.id) || this.#main !== null) return;
    channel.arrivesOnBulk = true;
    if (this.#bulk === null) channel.cut(new Error('the connection for bulk was lost'));
    else this.#bulk.#scheduleFlush();
  }

  onReset(streamId: number): void {
    this.#count(FRAMES_PER_RESET);
    const channel = this.#find(streamId);
    if (channel) channel.isServed = false;
    if (channel && this.#carries(streamId)) this.#inOrder(channel, () => channel.receiveReset());
    // The peer may have lost the connection for bulk already.
    else channel?.receiveReset();
  }

  onWindowIncrement(streamId: number, increment: number): void {
    this.#count(1);
    this.#channels.get(streamId)?.receiveCredit(increment);
  }

  onGoAway(): void {
    this.close(new Error('GOAWAY received'));
  }

  #accept(streamId: number): Channel {
    if (!this.#isPeers(streamId) || this.#carries(streamId) || this.#channels.has(streamId)) {
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
    this.#routeOf(channel).#enqueue(channel);
  }

  /** The connection on which a stream sends. */
  #routeOf(channel: Channel | undefined): Connection {
    return channel?.sendsOnBulk && this.#bulk !== null ? this.#bulk : this;
  }

  #enqueue(channel: Channel): void {
    this.#queue.add(channel);
    this.#scheduleFlush();
  }

  carriesBulk(channel: Channel, direction: BulkMeter): void {
    if (this.#bulk !== null) return;
    const now = turnTime();
    // Opening it takes some round trips.
    const isRatherLong = direction.isLong(now, this.roundTrip.least, 1 / 2);
    if (isRatherLong || this.#queue.hasCompany(channel, now)) this.user.wantsBulkConnection?.();
  }

  windowIncrement(streamId: number, increment: number): void {
    this.#out.windowIncrement(streamId, increment);
    this.#scheduleFlush();
  }

  reset(streamId: number, code: MuxError): void {
    const connection = this.#routeOf(this.#channels.get(streamId));
    connection.#out.reset(streamId, code);
    connection.#scheduleFlush();
  }

  get room(): number {
    return this.#memory.room;
  }

  holds(channel: Channel): void {
    this.#holding.add(channel);
    this.#scheduleFlush();
  }

  hold(bytes: number): void {
    this.#memory.add(bytes);
  }

  promise(bytes: number): void {
    this.#memory.promise(bytes);
  }

  /** Ends the session's stream that holds the most memory. */
  reclaim(): void {
    let most: Channel | null = null;
    let owner: Connection = this;
    for (const connection of this.#bulk === null ? [this] : [this, this.#bulk]) {
      for (const channel of connection.#channels.values()) {
        if (channel.memory <= (most?.memory ?? 0)) continue;
        most = channel;
        owner = connection;
      }
    }
    const reason = new Error('memory limit reached');
    // SDKs hang when a request of theirs is reset; requests have the agent's odd ids.
    if (most === null || (most.id % 2 === 1 && !most.receiver.onCut)) owner.socket.destroy(reason);
    else most.cut(reason);
    this.#reportMemory();
  }

  forget(channel: Channel): void {
    this.#queue.delete(channel);
    this.#holding.delete(channel);
    const bulk = this.#bulk;
    if (bulk !== null) bulk.#forgetMoved(channel);
    if (!this.#channels.delete(channel.id) || !this.#isPeers(channel.id)) return;
    this.#inbound -= 1;
    // What ends with its connection is nobody's fault; a gateway's streams end with their clients.
    if (this.role === 'gateway' && !channel.isServed && !this.#ended) this.#countUseless(USELESS_FRAMES_PER_STREAM);
  }

  #forgetMoved(channel: Channel): void {
    this.#queue.delete(channel);
    if (this.#early?.channel === channel) this.#scheduleFlush();
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
  }

  #decodeRest(): void {
    if (this.#early !== null && !this.#early.channel.arrivesOnBulk && !this.#early.channel.closed) return;
    this.#decoder.resume();
    const rest = this.#rest;
    if (rest === null) return;
    this.#rest = null;
    this.#decode(rest);
    if (this.#rest === null) this.socket.resume();
  }

  #send(): void {
    const isData = this.#queue.send(turnTime());
    if (this.#out.length === 0 && this.#readSinceFlush && !this.peerHonoursReset)
      this.#out.windowIncrement(UNUSED_STREAM_ID, 1);
    this.#readSinceFlush = false;
    if (this.#out.length === 0) return;
    this.#out.writeTo(this.socket);
    if (isData) this.user.sent?.();
    if (this.socket.writableLength > this.#limits.unread) this.socket.destroy(new Error('the peer does not read'));
  }

  /**
   * Moves a bulk stream to the connection for bulk if it has company or lasts long; returns whether it does. TCP starts
   * slowly again there, which would delay shorter transfers that disturb nobody.
   */
  #moveOut(channel: Channel, now: number): boolean {
    const bulk = this.#bulk;
    if (bulk === null || !this.#movesBulk || !channel.sendsBulk || !isGateways(channel.id)) return false;
    if (!this.#queue.hasCompany(channel, now) && !channel.sending.isLong(now, this.roundTrip.least)) return false;
    this.#out.moved(channel.id);
    channel.sendsOnBulk = true;
    bulk.#enqueue(channel);
    return true;
  }

  #reportMemory(): void {
    if (this.#main !== null) this.#main.#reportMemory();
    else if (this.#ended) this.#memory.release();
    else this.#memory.report(this.socket.writableLength + (this.#bulk?.socket.writableLength ?? 0));
  }

  #end(reason: Error): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#decoder.stop();
    for (const channel of [...this.#channels.values()]) channel.lose(reason);
    this.#reportMemory();
    this.#bulk?.close(reason);
    const main = this.#main;
    if (main !== null) main.#loseBulk(this);
    this.user.ended(reason);
  }

  /** The streams on the connection for bulk end with it; the others continue. */
  #loseBulk(bulk: Connection): void {
    if (this.#ended || this.#bulk !== bulk) return;
    this.#bulk = null;
    this.#movesBulk = false;
    const reason = new Error('the connection for bulk was lost');
    for (const channel of [...this.#channels.values()]) if (channel.needsBulk) channel.cut(reason);
  }
}

/** The start of a DATA or RST frame. */
interface EarlyFrame {
  channel: Channel;
  handle: () => void;
  /** Set for a DATA frame without payload, which has ended already: whether it has a FIN. */
  fin: boolean | null;
}
