import type { ByteChannel, ByteReceiver } from '../../agent-protocol/byte-channel.ts';
import type { Channel, ChannelReceiver } from '../../agent-protocol/channel.ts';
import type { Connection } from '../../agent-protocol/connection.ts';
import { ClientShares } from '../../lib/network/client-shares.ts';
import { clientNetwork } from '../../lib/network/ip-address.ts';
import { turnTime } from '../../lib/time/loop-turn.ts';
import { StreamsExhausted } from '../endpoints/online-endpoint.ts';
import { EndpointTraffic } from '../endpoints/traffic-counts.ts';
import { AGENT_LIMITS } from './agent-limits.ts';

// The SDK's limits were measured with `@ngrok/ngrok` 1.7.0.

/** The SDK's accept queue holds 64 streams; when it is full, the SDK stops reading the connection. */
const MAX_OFFERED = 32;
/** A listener that nobody reads accepts 64 streams; the next one blocks the whole session. */
const MAX_UNANSWERED = 56;
/**
 * The last slots are kept for streams with data: an agent that reads the listener reacts to those. Without them, clients
 * that connect and stay silent would block all others.
 */
const MAX_UNANSWERED_WITH_DATA = 62;
/** Streams aborted to make room that the agent has not confirmed yet, and milliseconds that these count for this limit. */
const MAX_DISPLACED = 8;
const DISPLACED_MS = 5000;
/** Milliseconds for which the room that was made for a client network is kept for it. */
const PROMISE_MS = 1000;
/** Streams that have ended, or else share of free ones, at which the agent is asked whether it still counts the ended ones. */
const MANY_ENDS = 64;
const FEW_FREE = 1 / 8;
/** Milliseconds that an agent which does not echo a heartbeat has for reading what was sent before. */
const READ_MS = 5000;
/** Milliseconds in which an agent that has read a reset notices it where the stream is used; a busy one takes longer. */
const NOTICE_RESET_MS = 250;
/** The same as a multiple of the time in which it has answered, and at most. */
const NOTICE_RESET_FACTOR = 3;
const NOTICE_RESET_MOST_MS = 2_000;
/** Milliseconds in which some stream has to be accepted while others wait. */
const STUCK_MS = 10_000;
/** Milliseconds without a byte after which a client that has ended its side makes room for others. */
const SILENT_MS = 1000;
/** Share of the streams that is kept for listeners with few: of these, one gets another while it has fewer than are free. */
const KEPT_FOR_FEW = 1 / 10;
/** Milliseconds that an upstream has for ending its side of streams that clients have left, while others need them. */
const ABANDONED_MS = 10_000;
/** Milliseconds from a refusal to the judgement whether it is because of those. */
const JUDGE_MS = 1000;
/** Share of the streams that may be lost so before the session has to be replaced. */
const ABANDONED_SHARE = 1 / 2;

/** The streams to a listener. */
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

interface GateUser {
  /** Whether the session has more listeners than one. */
  readonly hasSeveral: boolean;
  /** The link for the next stream: the one with the least bytes on their way. */
  link(): Connection;
  /** @returns whether the agent echoed a heartbeat within `ms`, and so has read all that was sent before it */
  beat(ms: number): Promise<boolean>;
  /** The agent reads, but has accepted no stream for long. */
  onStuck(): void;
  /** Upstreams keep so many streams open that clients have left that others find too few; only a new session has them all. */
  onAbandoned(streams: number): void;
}

/** Opens a session's streams within the SDK's limits. Bursts are queued here: too many would block or drop the session. */
export class StreamGate {
  /** Every stream that counts towards the limit, including aborted ones that the agent has not confirmed. */
  readonly #counted = new Set<GatedChannel>();
  readonly #waiting = new Set<GatedChannel>();
  /** Networks for which room was made, and until when it is theirs, in milliseconds of `performance.now()`. */
  readonly #promised = new Map<string, number>();
  readonly #displaced = new Set<GatedChannel>();
  /** Streams that the gateway has reset or both sides have ended, and that the SDK may still count. */
  readonly #leaving = { resets: 0, ends: 0 };
  /** Those of them that no heartbeat has followed yet. */
  #unconfirmed = { resets: 0, ends: 0 };
  #confirming = false;
  #offered = 0;
  /** Streams that the agent has accepted or ended so far. */
  #passed = 0;
  #stuckTimer: NodeJS.Timeout | undefined;
  /** Listeners whose clients were refused since the last judgement. */
  readonly #refused = new Set<Lane>();
  /** When an answered stream of a listener last ended, in milliseconds of `performance.now()`. */
  readonly #served = new Map<Lane, number>();
  #judgeTimer: NodeJS.Timeout | undefined;

  constructor(
    private readonly user: GateUser,
    private readonly limit = AGENT_LIMITS.connections,
  ) {}

  /**
   * Creates a stream to a listener; it opens as soon as the agent can accept it. @throws {StreamsExhausted} at the limit of
   * the session or the listener, perhaps after making room for a later attempt; Error when one of them has ended
   */
  open(lane: Lane, preamble: Buffer, client: string): GatedChannel {
    if (lane.closed) throw new Error('the listener is offline');
    const network = clientNetwork(client);
    this.#confirmLeaving();
    if (!this.#hasPlace(lane, this.#taken(network))) {
      if (!this.#cutLeft(lane)) this.#makeRoom(lane, network);
      // An SDK may take long to end a stream.
      if (!this.#hasPlace(lane, this.#taken(network))) {
        this.#refused.add(lane);
        this.#judgeTimer ??= setTimeout(() => this.#judgeRefusals(), JUDGE_MS).unref();
        throw new StreamsExhausted();
      }
    }
    this.#promised.delete(network);
    const connection = this.user.link();
    const channel = connection.channel();
    channel.maySpread = true;
    channel.write(preamble);
    const stream = new GatedChannel(connection, channel, lane, preamble.length, client, this);
    this.#counted.add(stream);
    lane.streams.add(stream);
    lane.shares.add(client, stream);
    this.#waiting.add(stream);
    this.admit();
    if (channel.closed) throw new Error('the session has ended');
    return stream;
  }

  admit(): void {
    this.#openWaiting();
    if (this.#waiting.size > 0) this.#watch();
  }

  #openWaiting(): void {
    for (const stream of this.#waiting) {
      if (this.#offered >= MAX_OFFERED) return;
      const { lane } = stream;
      if (!lane.ready || lane.unanswered.size >= (stream.hasData ? MAX_UNANSWERED_WITH_DATA : MAX_UNANSWERED)) continue;
      this.#waiting.delete(stream);
      stream.stage = 'offered';
      this.#offered += 1;
      lane.unanswered.add(stream);
      stream.connection.open(stream.channel);
    }
  }

  /** Closes every stream of a listener, and opens no more. */
  cut(lane: Lane, reason: Error): void {
    lane.ready = false;
    lane.closed = true;
    this.#served.delete(lane);
    for (const stream of [...lane.streams]) stream.cut(reason);
  }

  /** The agent has consumed `total` bytes of a stream. Not called in the stage `answered`. */
  credited(stream: GatedChannel, total: number): void {
    if (total < stream.preamble) return;
    if (total > stream.preamble) {
      this.answered(stream);
    } else if (stream.stage === 'offered') {
      stream.stage = 'accepted';
      this.#offered -= 1;
      this.#passed += 1;
      this.admit();
    }
  }

  /**
   * The agent has sent something on a stream. Called before the stage is `answered`. Listeners hand streams out in order, so
   * every stream sent before this one has been handed out, too.
   */
  answered(stream: GatedChannel): void {
    const { unanswered } = stream.lane;
    if (!unanswered.has(stream)) return;
    for (const earlier of unanswered) {
      this.#settle(earlier);
      if (earlier === stream) break;
    }
    if (this.#waiting.size > 0) this.admit();
  }

  /** The stream no longer counts towards the agent's limit. */
  closed(stream: GatedChannel): void {
    if (!this.#counted.has(stream)) return;
    if (stream.wasReset) this.#countLeaving('resets');
    else if (stream.stage !== 'waiting' && !stream.connection.peerHonoursReset) this.#countLeaving('ends');
    if (stream.stage === 'answered' && !stream.lane.closed) this.#served.set(stream.lane, turnTime());
    this.#counted.delete(stream);
    this.#displaced.delete(stream);
    stream.lane.streams.delete(stream);
    stream.lane.shares.delete(stream.client, stream);
    this.#settle(stream);
    if (this.#waiting.size > 0) this.admit();
    stream.lane.streamLeft();
  }

  /** Whether a client of this listener would get a stream, unless others have been promised the rest. */
  hasRoom(lane: Lane): boolean {
    return this.#hasPlace(lane, this.streams);
  }

  /**
   * Whether a listener can have one more. Each leaves some to others, if there are any: the SDK keeps a stream for as long as
   * its upstream does, even after the client has left. @param taken streams of all
   */
  #hasPlace(lane: Lane, taken: number): boolean {
    const free = this.limit - taken;
    return free > this.limit * KEPT_FOR_FEW || lane.streams.size < free || (free > 0 && !this.user.hasSeveral);
  }

  /**
   * Aborts the stream that has been silent for longest of those whose clients have ended their side, here or at listeners
   * with at least as many; returns whether it did.
   */
  #cutLeft(lane: Lane): boolean {
    if (this.#hasPlace(lane, this.#counted.size + this.#leaving.resets)) return false;
    let least: GatedChannel | undefined;
    for (const stream of this.#counted) {
      const isLeft = stream.hasEnded && stream.abandonedAt === null && stream.lane.streams.size >= lane.streams.size;
      if (isLeft && (least === undefined || stream.movedAt < least.movedAt)) least = stream;
    }
    if (least === undefined || turnTime() - least.movedAt < SILENT_MS) return false;
    least.cut(new StreamsExhausted());
    return true;
  }

  /** Finds out whether clients were refused because of streams that nobody uses. */
  #judgeRefusals(): void {
    this.#judgeTimer = undefined;
    const refused = [...this.#refused];
    this.#refused.clear();
    const overdue = performance.now() - ABANDONED_MS;
    let abandoned = 0;
    for (const { leftAt } of this.#counted) if (leftAt <= overdue) abandoned += 1;
    if (abandoned < this.limit * ABANDONED_SHARE) return;
    if (refused.some((lane) => this.#needsNewSession(lane, overdue))) this.user.onAbandoned(abandoned);
  }

  /**
   * A new session costs the clients of all listeners their connections. Those of one listener are worth it when nobody uses
   * another one; or when other upstreams keep the streams, and its own does not do the same.
   */
  #needsNewSession(lane: Lane, overdue: number): boolean {
    let [left, leftByOthers] = [0, 0];
    // Clients with one short request after another have no stream most of the time.
    let areOthersUsed = [...this.#served].some(([other, at]) => other !== lane && at > overdue);
    for (const { lane: other, abandonedAt, leftAt } of this.#counted) {
      if (other === lane) left += Number.isFinite(leftAt) ? 1 : 0;
      // An agent may have bound it again.
      else if (other.closed && other.upstream === lane.upstream) continue;
      else if (leftAt <= overdue) leftByOthers += 1;
      else if (abandonedAt === null) areOthersUsed = true;
    }
    if (!areOthersUsed) return true;
    return leftByOthers >= this.limit * ABANDONED_SHARE && left <= lane.streams.size / 2;
  }

  carries(connection: Connection): boolean {
    return [...this.#counted].some((stream) => stream.connection === connection);
  }

  /**
   * Aborts the stream with the least progress of the listener that has at least two more than this one, or else of the client
   * network that has at least two more here. None when the streams that both sides have ended leave room anyway.
   */
  #makeRoom(lane: Lane, network: string): void {
    if (this.#displaced.size >= MAX_DISPLACED) return;
    if (this.#hasPlace(lane, this.#counted.size + this.#leaving.resets)) return;
    let largest = lane;
    for (const { lane: other, abandonedAt } of this.#counted) {
      if (abandonedAt === null && other.streams.size > largest.streams.size) largest = other;
    }
    const isOther = largest.streams.size >= lane.streams.size + 2;
    const share = isOther ? largest.shares.largest : lane.shares.excessFor(network);
    let least: GatedChannel | undefined;
    for (const stream of share) {
      if (stream.abandonedAt === null && (least === undefined || stream.movedAt < least.movedAt)) least = stream;
    }
    if (least === undefined) return;
    this.#promised.set(network, performance.now() + PROMISE_MS);
    this.#displaced.add(least);
    // Upstreams may keep their side open for ever: no reason to make no further room.
    setTimeout(() => this.#displaced.delete(least), DISPLACED_MS).unref();
    least.cut(new StreamsExhausted());
  }

  /** Streams that a network cannot have: those that count, and those that others have been promised. */
  #taken(network: string): number {
    let taken = this.streams;
    if (this.#promised.size === 0) return taken;
    const now = performance.now();
    for (const [other, until] of this.#promised) {
      if (until <= now) this.#promised.delete(other);
      else if (other !== network) taken += 1;
    }
    return taken;
  }

  /** Whether a client has something under way. An agent may still count streams that have ended. */
  get isInUse(): boolean {
    for (const { abandonedAt } of this.#counted) if (abandonedAt === null) return true;
    return false;
  }

  /** Streams that the agent counts, as far as is known here. */
  get streams(): number {
    return this.#counted.size + this.#leaving.resets + this.#leaving.ends;
  }

  /**
   * The SDK counts a stream until the task that forwards it has noticed that it was reset, or has run after its end, and drops
   * its session at 512. Hundreds may end at once, on a device that is busy for long.
   */
  #countLeaving(kind: 'resets' | 'ends'): void {
    this.#leaving[kind] += 1;
    this.#unconfirmed[kind] += 1;
    this.#confirmLeaving();
  }

  #confirmLeaving(): void {
    if (this.#mustConfirm && !this.#confirming) void this.#confirm();
  }

  /** Ends are confirmed many at a time: it takes two heartbeats. */
  get #mustConfirm(): boolean {
    const { resets, ends } = this.#unconfirmed;
    return resets > 0 || ends >= MANY_ENDS || (ends > 0 && this.limit - this.streams <= this.limit * FEW_FREE);
  }

  /**
   * A busy device reads late: what it has echoed came after the ends. It may echo one heartbeat before the tasks that the
   * ends have woken run, but not two.
   */
  async #confirm(): Promise<void> {
    this.#confirming = true;
    while (this.#mustConfirm) {
      const { resets, ends } = this.#unconfirmed;
      this.#unconfirmed = { resets: 0, ends: 0 };
      const askedAt = performance.now();
      if (await this.user.beat(READ_MS)) await this.user.beat(READ_MS);
      this.#leaving.ends -= ends;
      const busyMs = Math.min(NOTICE_RESET_MOST_MS, NOTICE_RESET_FACTOR * (performance.now() - askedAt));
      if (resets > 0) setTimeout(() => void this.#forgetResets(resets), Math.max(NOTICE_RESET_MS, busyMs)).unref();
    }
    this.#confirming = false;
  }

  /** The task that sends also removes streams (muxado 0.5), in order: it may stand still while this gateway reads late. */
  async #forgetResets(resets: number): Promise<void> {
    await this.user.beat(READ_MS);
    this.#leaving.resets -= resets;
  }

  /** Streams that wait must not do so for ever, when the agent accepts none or an upstream takes no connections. */
  #watch(): void {
    if (this.#stuckTimer !== undefined) return;
    const passed = this.#passed;
    const isFull = this.#offered >= MAX_OFFERED;
    this.#stuckTimer = setTimeout(() => {
      this.#stuckTimer = undefined;
      if (isFull && passed === this.#passed && this.#waiting.size > 0) this.user.onStuck();
      else this.#refuseOverdue();
    }, STUCK_MS).unref();
  }

  #refuseOverdue(): void {
    const overdue = performance.now() - STUCK_MS;
    for (const stream of [...this.#waiting]) if (stream.madeAt <= overdue) stream.cut(new StreamsExhausted());
    if (this.#waiting.size > 0) this.#watch();
  }

  #settle(stream: GatedChannel): void {
    this.#waiting.delete(stream);
    stream.lane.unanswered.delete(stream);
    if (stream.stage === 'offered') {
      this.#offered -= 1;
      this.#passed += 1;
    }
    stream.stage = 'answered';
  }
}

/** Progress of a stream: queued here, sent, header credited by the agent, reacted to by the agent. */
type Stage = 'waiting' | 'offered' | 'accepted' | 'answered';

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
  /** Where its bytes count. */
  traffic: Pick<Lane['traffic'], 'received' | 'sent'>;

  /** @param channel not open yet, with a preamble of so many bytes written; this becomes its receiver */
  constructor(
    readonly connection: Connection,
    readonly channel: Channel,
    readonly lane: Lane,
    readonly preamble: number,
    public client: string,
    private readonly gate: StreamGate,
  ) {
    channel.receiver = this;
    this.traffic = lane.traffic;
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
    this.connection.use.note(true);
    this.traffic.received += bytes.length;
    const room = this.channel.write(bytes);
    if (this.stage === 'waiting' && !this.hasData) {
      this.hasData = true;
      this.gate.admit();
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
    this.connection.use.note(false);
    this.traffic.sent += payload.length;
    if (this.stage !== 'answered') this.gate.answered(this);
    this.receiver.onData(payload);
  }

  onEnd(): void {
    if (this.stage !== 'answered') this.gate.answered(this);
    this.receiver.onEnd();
  }

  onDrain(): void {
    this.receiver.onDrain?.();
  }

  onCredit(total: number): void {
    if (this.stage !== 'answered') this.gate.credited(this, total);
  }

  /** With FIN: an SDK that waits for the upstream does not notice a reset, and the stream keeps its slot there. */
  onCut(reason: Error): void {
    this.cut(reason);
  }

  onClosed(error?: Error): void {
    this.gate.closed(this);
    this.receiver.onClosed?.(error);
  }
}
