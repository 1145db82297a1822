import type { Channel, ChannelReceiver, PartOnItsWay } from './channel.ts';
import type { Connection, Siblings } from './connection.ts';
import { StreamType, streamPrefix } from './messages.ts';
import { ArrivingPart, DepartedPart, NO_STREAM, PART, partHead } from './stream-parts.ts';

/** Links of a session at most; both ends announce how many they support. */
export const MOST_LINKS = 12;
/** Links where packets are lost, with one for what is little; each transfer adds one. */
const FEWEST_LINKS = 3;
/** A transfer counts as one for so many milliseconds after its last part. */
const ACTIVE_MS = 1_000;

/** Bytes that a small part counts as: peers limit the streams of a link. */
const PART_COST = 16_384;
/** Bytes of parts that are on their way on a link: more than TCP sends in a round trip where it is held up by losses. */
const LINK_BYTES = 262_144;

/** Shorter round trips make up for lost packets themselves. In milliseconds. */
const LEAST_ROUND_TRIP_MS = 10;
/** With more on its way, TCP is not held up. */
const SMALL_FLIGHT = 131_072;
/** TCP holds a transfer up when its answers take so many times as long as those on another link. */
const HELD_UP = 3;
/** A path that is full has a queue: an answer takes so many times as long as without one, and so many milliseconds more. */
const QUEUED = 1.5;
const QUEUED_MS = 10;
const PROBES = 3;
const PROBE_MS = 2_000;
/** A transfer without an answer for so many round trips and milliseconds is held up. */
const HELD_ROUND_TRIPS = 8;
const HELD_MS = 400;
/** Until the next look after one that saw nothing. */
const LOOK_MS = 500;
/** Looks within this time belong to one transfer, and what TCP has sent again meanwhile. */
const AGAIN_MS = 6_000;
/** A link that a part has come on is in use for so many milliseconds: more of them follow. */
const IN_USE_MS = 10_000;
/** So long after it was noticed that packets are lost, transfers are spread from their start. */
const LOSSY_MS = 300_000;
/** So many parts that were no slower than the path, one after another: TCP is not held up any longer. */
const QUICK_PARTS = 64;
const QUICK = 2;

const ALONE: readonly Connection[] = [];

interface BundleUser {
  /** Asks the peer on a link, behind all that waits there. @returns whether it answers within `ms` */
  ask(connection: Connection, ms: number): Promise<boolean>;
  /** Segments that TCP has sent again on this machine; null: it does not say. */
  sentAgain(): Promise<number | null>;
  /** So many links would carry more than there are. Called repeatedly. */
  wantsLinks(count: number): void;
}

/**
 * The links of a session. Where packets are lost, TCP sends little on each, however fast the path is: then streams with much
 * to send are spread over several, and one is left to what is little. A spread stream travels as parts, each on a stream of its own
 * with its place, which the peer ends as soon as all of it has arrived. Between parts, and for its end, a stream waits until all
 * parts have arrived, and goes on where it was opened: so nothing overtakes them.
 */
export class LinkBundle implements Siblings {
  /** By the numbers that both ends know. */
  readonly #links = new Map<number, Connection>();
  /** Links that nothing new may use. */
  readonly #leaving = new Set<Connection>();
  /** Bytes that the parts on their way to the peer count as, by link. */
  readonly #loads = new Map<Connection, number>();
  /** Streams that have something to send in parts, in turn, with the number of their link. */
  readonly #waiting = new Map<Channel, number>();
  #isPumpDue = false;
  /** Spread streams, by link and id, and when something of each was last sent or received; in milliseconds of `performance.now()`. */
  readonly #active = new Map<string, number>();
  #lossyAt = Number.NEGATIVE_INFINITY;
  #heldUpAt = Number.NEGATIVE_INFINITY;
  #isLooking = false;
  #nextLookAt = 0;
  /** Segments that TCP had sent again some time ago, and when that was. */
  #resent: { at: number; count: Promise<number | null> } = {
    at: Number.NEGATIVE_INFINITY,
    count: Promise.resolve(null),
  };
  #quickParts = 0;
  #toldAt = Number.NEGATIVE_INFINITY;
  /** When the peer last said that packets are lost, and when the last part came on each link. */
  #heardAt = Number.NEGATIVE_INFINITY;
  readonly #partAt = new Map<Connection, number>();

  /** @param most how many links both ends support; streams are spread with more than two */
  constructor(
    private readonly user: BundleUser,
    private readonly most: () => number,
  ) {}

  add(number: number, connection: Connection): void {
    this.#links.set(number, connection);
    connection.siblings = this;
  }

  get size(): number {
    return this.#links.size;
  }

  has(number: number): boolean {
    return this.#links.has(number);
  }

  delete(connection: Connection): void {
    for (const [number, one] of this.#links) if (one === connection) this.#links.delete(number);
    this.#leaving.delete(connection);
    this.#partAt.delete(connection);
    this.#wakeAll();
  }

  /** Whether parts are on their way to the peer there. */
  carries(connection: Connection): boolean {
    return this.#loads.has(connection);
  }

  /** Whether parts are on their way there, or have just come. */
  isUsed(connection: Connection): boolean {
    const cameAt = this.#partAt.get(connection) ?? Number.NEGATIVE_INFINITY;
    return this.carries(connection) || performance.now() - cameAt < IN_USE_MS;
  }

  /** Nothing new uses the link from now on. @returns false when it is in use */
  leave(connection: Connection): boolean {
    if (this.carries(connection)) return false;
    this.#leaving.add(connection);
    this.#wakeAll();
    return true;
  }

  /** The link is used again, whether or not it was to leave. */
  stay(connection: Connection): void {
    this.#leaving.delete(connection);
  }

  get isLossy(): boolean {
    return this.#mayBeSpread && performance.now() - this.#lossyAt < LOSSY_MS;
  }

  othersOf(connection: Connection): readonly Connection[] {
    return this.#links.size < 2 ? ALONE : this.#othersOf(connection);
  }

  #othersOf(connection: Connection): Connection[] {
    return this.#usable.filter((other) => other !== connection);
  }

  isForBulk(connection: Connection): boolean {
    if (!this.isLossy) return false;
    const quiet = this.#quiet;
    return quiet !== null && quiet !== connection && this.#isActive(performance.now());
  }

  /** The link for a new stream: the given one, unless another has far less on its way. */
  freest(first: Connection): Connection {
    if (this.isLossy && this.#quiet !== null) return this.#quiet;
    if (!first.isCrowded) return first;
    return this.#othersOf(first).reduce((least, other) => (other.load < least.load ? other : least));
  }

  /** The second link: it was opened for what is little, beside bulk on the first. */
  get #quiet(): Connection | null {
    return this.#usable[1] ?? null;
  }

  spread(stream: Channel, connection: Connection): boolean {
    const number = this.isLossy ? this.#numberOf(connection) : null;
    if (number === null) return false;
    this.#note(number, stream.id);
    if (this.#bulk.length < 2) {
      this.#tellPeer();
      return false;
    }
    // It asks again when it is known.
    if (!stream.isKnown) return true;
    this.#waiting.set(stream, number);
    this.#pumpSoon();
    return true;
  }

  /** Takes a stream that the peer has opened on a link, and that carries a part of another. */
  accept(lane: Channel, link: Connection): ChannelReceiver {
    return new ArrivingPart(lane, (number, id) => {
      const now = performance.now();
      this.#lossyAt = now;
      const stream = this.#links.get(number)?.clientStream(id) ?? null;
      if (stream !== null) {
        this.#note(number, id);
        if (!link.hasEnded) this.#partAt.set(link, now);
      } else if (id === NO_STREAM) {
        this.#note(0, NO_STREAM);
        // More often than that, it counts as a glitch, like parts of unknown streams.
        lane.isServed = now - this.#heardAt >= LOOK_MS / 2;
        this.#heardAt = now;
      }
      return stream;
    });
  }

  /**
   * A link carries a transfer that this end sends. Looks whether TCP holds it up, although the path has no queue: with one, more
   * links would carry no more.
   */
  async carriesBulk(busy: Connection): Promise<void> {
    const now = performance.now();
    if (!this.#mayBeSpread || this.isLossy || this.#isLooking || now < this.#nextLookAt) return;
    if (now - this.#resent.at > AGAIN_MS) this.#resent = { at: now, count: this.user.sentAgain() };
    const [other, least] = [this.othersOf(busy)[0], this.#roundTrip];
    if (other === undefined || least === null || least < LEAST_ROUND_TRIP_MS) return;
    this.#isLooking = true;
    const look = async () =>
      [await this.#isHeldUp(busy, other, least), await this.#resent.count, await this.user.sentAgain()] as const;
    const [isHeldUp, before, count] = await look().finally(() => {
      this.#isLooking = false;
    });
    const after = performance.now();
    const isSecond = after - this.#heldUpAt < AGAIN_MS;
    this.#heldUpAt = isHeldUp ? after : Number.NEGATIVE_INFINITY;
    // TCP may only be starting. Where the kernel does not count what was lost, another look says it.
    const isLossy = isHeldUp && (before === null || count === null ? isSecond : count > before);
    if (!isLossy) {
      this.#nextLookAt = isHeldUp ? after : after + LOOK_MS;
      return;
    }
    this.#lossyAt = after;
    this.#quickParts = 0;
    this.user.wantsLinks(Math.min(this.most(), FEWEST_LINKS + 1));
    this.#tellPeer();
  }

  /** By a part of no stream: agents open links, and gateways leave one to what is little. */
  #tellPeer(): void {
    const [now, link] = [performance.now(), this.#quiet];
    if (link === null || now - this.#toldAt < LOOK_MS) return;
    this.#toldAt = now;
    const lane = link.channel();
    lane.write(Buffer.concat([streamPrefix(StreamType.part), partHead(0, NO_STREAM, 0)]));
    lane.end();
    link.open(lane);
  }

  async #isHeldUp(busy: Connection, other: Connection, least: number): Promise<boolean> {
    const { sentBytes } = busy;
    const patienceMs = Math.max(HELD_MS, HELD_ROUND_TRIPS * least);
    const held = this.#answerMs(busy, patienceMs).then((ms) => ({
      ms,
      flight: ((busy.sentBytes - sentBytes) / ms) * least,
    }));
    let pathMs = Number.POSITIVE_INFINITY;
    for (let probe = 0; probe < PROBES; probe++) pathMs = Math.min(pathMs, await this.#answerMs(other));
    const { ms, flight } = await held;
    const isQueued = pathMs > QUEUED * least + QUEUED_MS;
    return !busy.hasEnded && !isQueued && ms >= HELD_UP * pathMs && flight < SMALL_FLIGHT;
  }

  /** As long as it waits, when there is no answer. */
  async #answerMs(connection: Connection, patienceMs = PROBE_MS): Promise<number> {
    const askedAt = performance.now();
    await this.user.ask(connection, patienceMs);
    return performance.now() - askedAt;
  }

  #note(number: number, id: number): void {
    const [key, now] = [`${number} ${id}`, performance.now()];
    const before = this.#active.get(key);
    if (before !== undefined && now - before < ACTIVE_MS / 2) return;
    this.#active.set(key, now);
    this.#isActive(now);
    this.user.wantsLinks(Math.min(this.most(), FEWEST_LINKS + this.#active.size));
  }

  /** Whether streams are spread now. */
  #isActive(now: number): boolean {
    for (const [one, at] of this.#active) if (now - at >= ACTIVE_MS) this.#active.delete(one);
    return this.#active.size > 0;
  }

  #pumpSoon(): void {
    if (this.#isPumpDue) return;
    this.#isPumpDue = true;
    setImmediate(() => {
      this.#isPumpDue = false;
      this.#pump();
    });
  }

  /** Streams take turns. */
  #pump(): void {
    for (const [stream, number] of this.#waiting) {
      const link = this.#freestForBulk;
      if (link === null) break;
      this.#waiting.delete(stream);
      const send = (offset: number, bytes: Buffer[]) => this.#send(stream, number, { offset, bytes, link });
      if (stream.takePart(PART, send)) this.#waiting.set(stream, number);
    }
    if (this.#bulk.length < 2) this.#wakeAll();
  }

  /** They find another way. */
  #wakeAll(): void {
    const streams = [...this.#waiting.keys()];
    this.#waiting.clear();
    for (const stream of streams) stream.wake();
  }

  #send(stream: Channel, number: number, part: { offset: number; bytes: Buffer[]; link: Connection }): PartOnItsWay {
    const { offset, bytes, link } = part;
    const lane = link.channel();
    const cost = Math.max(
      PART_COST,
      bytes.reduce((sum, { length }) => sum + length, 0),
    );
    const sentAt = performance.now();
    const wasFull = this.#load(link, cost) + PART > LINK_BYTES;
    const sent = new DepartedPart(lane, stream, (isArrived) => {
      this.#load(link, -cost);
      if (isArrived && wasFull) this.#judge(performance.now() - sentAt);
      this.#pumpSoon();
    });
    lane.receiver = sent;
    lane.write(Buffer.concat([streamPrefix(StreamType.part), partHead(number, stream.id, offset)]));
    for (const piece of bytes) lane.write(piece);
    lane.end();
    link.open(lane);
    return sent;
  }

  #load(link: Connection, bytes: number): number {
    const load = (this.#loads.get(link) ?? 0) + bytes;
    if (load > 0) this.#loads.set(link, load);
    else this.#loads.delete(link);
    return load;
  }

  #judge(tookMs: number): void {
    this.#quickParts = tookMs < QUICK * (this.#roundTrip ?? 0) ? this.#quickParts + 1 : 0;
    if (this.#quickParts < QUICK_PARTS) return;
    this.#lossyAt = Number.NEGATIVE_INFINITY;
    this.#quickParts = 0;
  }

  get #mayBeSpread(): boolean {
    return this.most() > 2;
  }

  #numberOf(connection: Connection): number | null {
    for (const [number, one] of this.#links) if (one === connection) return number;
    return null;
  }

  get #usable(): Connection[] {
    const inOrder = [...this.#links].sort(([one], [other]) => one - other).map(([, connection]) => connection);
    return inOrder.filter((connection) => !connection.hasEnded && !this.#leaving.has(connection));
  }

  /** Those that carry parts. */
  get #bulk(): Connection[] {
    return this.#usable.filter((_, at) => at !== 1);
  }

  get #freestForBulk(): Connection | null {
    const load = (link: Connection) => this.#loads.get(link) ?? 0;
    const free = this.#bulk.filter((link) => load(link) + PART <= LINK_BYTES);
    return free.length === 0 ? null : free.reduce((least, other) => (load(other) < load(least) ? other : least));
  }

  get #roundTrip(): number | null {
    const known = [...this.#links.values()].flatMap(({ roundTrip }) => roundTrip.least ?? []);
    return known.length === 0 ? null : Math.min(...known);
  }
}
