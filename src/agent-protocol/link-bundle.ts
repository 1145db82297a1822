import type { Channel, ChannelReceiver, Outlet } from './channel.ts';
import type { Bundle, Connection } from './connection.ts';
import { LANE_HEADER, LINKS_WANTED } from './segments.ts';
import { SpreadInlet } from './spread-inlet.ts';
import { SpreadOutlet } from './spread-outlet.ts';

/** Links of a session at most; both peers announce how many they support. */
export const MOST_LINKS = 12;
/**
 * Links for one transfer where packets are lost; each further one adds a link. All of them while the road has no queue, and at
 * least the fewest: what is little would wait in the queue, too.
 */
const LINKS_FOR_ONE = 4;
const FEWEST_FOR_ONE = 2;
/** Streams that are spread at a time, in one direction: each has another on every link, where an agent has 64, 32 for requests. */
const MOST_SPREAD = 24;
/** Shorter round trips make up for lost packets themselves. In milliseconds. */
const LEAST_ROUND_TRIP_MS = 10;
/** With more on its way, TCP is not held up by losses. */
const SMALL_FLIGHT = 131_072;
/** A link that is full has a queue: its round trip is so many times as long, and so many milliseconds. */
const QUEUED = 1.5;
const QUEUED_MS = 10;
const PROBES = 3;
const PROBES_BESIDE = 2;
const PROBE_MS = 2_000;
/** From one look at the round trip to the next, in milliseconds. */
const LOOK_MS = 1_000;
/** Two looks within this time belong to one transfer, and what TCP must have sent again meanwhile. */
const AGAIN_MS = 5_000;
const FEW_SENT_AGAIN = 2;
/** So long after it was noticed that packets are lost, a transfer is spread from its start. In milliseconds. */
const LOSSY_MS = 300_000;
/** A link may be silent for so much longer than others of its session, in milliseconds. */
const SPARED_MS = 20_000;

export interface BundleUser {
  /** Measures a round trip now; null: no answer within the time. */
  probe(connection: Connection, ms: number): Promise<number | null>;
  /** Segments that TCP has sent again; null: unknown. Omitted: those of other peers count, too. */
  sentAgain?: (() => Promise<number | null>) | undefined;
  /** So many links would carry more than there are. Called repeatedly. */
  wantsLinks(count: number): void;
}

/**
 * The links of a session as one road. Where packets are lost, a TCP connection carries little, however fast the link is: then
 * streams with much to send are spread over the links. One link is left to what is little.
 */
export class LinkBundle implements Bundle {
  readonly #links = new Map<number, Connection>();
  readonly #outlets = new Set<SpreadOutlet>();
  readonly #inlets = new Map<Channel, SpreadInlet>();
  /** When that was last noticed, in milliseconds of `performance.now()`. */
  #lossyAt = Number.NEGATIVE_INFINITY;
  /** Links that carry spread streams, of those that there are. */
  #inUse = LINKS_FOR_ONE - 1;
  /** What the kernel had sent again at the last look, and when that was. */
  #segments: { at: number; again: number | null } | null = null;
  #isLooking = false;
  #nextLookAt = 0;

  constructor(
    private readonly user: BundleUser,
    /** How many links both peers support. */
    private readonly most: number,
  ) {}

  add(link: number, connection: Connection): void {
    this.#links.set(link, connection);
    connection.bundle = this;
    connection.linkNumber = link;
  }

  delete(connection: Connection): void {
    this.#links.delete(connection.linkNumber);
  }

  has(connection: Connection): boolean {
    return this.#links.get(connection.linkNumber) === connection;
  }

  /** Whether packets are lost, as seen here or by the peer. */
  get isLossy(): boolean {
    return performance.now() - this.#lossyAt < LOSSY_MS;
  }

  /** Whether streams are spread over the connection now. */
  uses(connection: Connection): boolean {
    return (
      [...this.#outlets].some((outlet) => outlet.uses(connection)) ||
      [...this.#inlets.values()].some((inlet) => inlet.uses(connection))
    );
  }

  /** The link for new streams where packets are lost; null: any. */
  get quiet(): Connection | null {
    return this.isLossy ? this.#quiet : null;
  }

  isForBulk(connection: Connection): boolean {
    const { quiet } = this;
    return quiet !== null && quiet !== connection && this.uses(connection);
  }

  heardAt(connection: Connection): number {
    const own = connection.lastReadAt;
    if (!this.isLossy) return own;
    const last = Math.max(...[...this.#links.values()].map(({ lastReadAt }) => lastReadAt));
    return Math.max(own, Math.min(last, own + SPARED_MS));
  }

  spread(channel: Channel, connection: Connection): Outlet | null {
    if (!this.isLossy || this.#links.size < 2 || this.#outlets.size >= MOST_SPREAD) return null;
    const bundle = this;
    const outlet: SpreadOutlet = new SpreadOutlet(channel, {
      get bulk() {
        return bundle.#bulk;
      },
      get quiet() {
        return bundle.#quiet ?? connection;
      },
      linkNumber: connection.linkNumber,
      over: () => {
        this.#outlets.delete(outlet);
      },
    });
    this.#outlets.add(outlet);
    setImmediate(() => this.want());
    return outlet;
  }

  /** Takes a stream that the peer opens for segments of another. */
  accept(lane: Channel): ChannelReceiver {
    let head: Buffer = Buffer.alloc(0);
    return {
      onData: (payload) => {
        const part = payload.subarray(0, LANE_HEADER - head.length);
        head = Buffer.concat([head, part]);
        if (head.length < LANE_HEADER) return;
        if (head.readUInt16BE(0) === LINKS_WANTED) {
          this.user.wantsLinks(Math.min(head.readUInt32BE(2), this.most));
          lane.end();
          return;
        }
        const receiver = this.#inletFor(head)?.accept(lane) ?? null;
        if (receiver === null) {
          lane.abort();
          return;
        }
        lane.isServed = true;
        lane.receiver = receiver;
        if (payload.length > part.length) receiver.onData(payload.subarray(part.length));
      },
      onEnd: () => lane.abort(),
    };
  }

  /** The connection has sent something. */
  sent(connection: Connection, now: number): void {
    if (this.#isLooking || now < this.#nextLookAt) return;
    if (this.isLossy) {
      this.#nextLookAt = now + LOOK_MS;
      if (this.#active(this.#outlets) > 0) void this.#adjust();
      return;
    }
    const roundTrip = this.#roundTrip;
    if (roundTrip === null || roundTrip < LEAST_ROUND_TRIP_MS) return;
    const flight = connection.flight(now, roundTrip);
    if (flight === null || flight >= SMALL_FLIGHT) return;
    const other = this.#inOrder.find((one) => one !== connection);
    if (other) void this.#look(other, roundTrip);
    else {
      this.#nextLookAt = now + LOOK_MS;
      this.user.wantsLinks(2);
    }
  }

  /** A connection that sends little may do so because the link is full, and then more connections carry no more. */
  async #look(other: Connection, least: number): Promise<void> {
    this.#isLooking = true;
    const [before, again] = [this.#segments, (await this.user.sentAgain?.()) ?? null];
    this.#segments = { at: performance.now(), again };
    this.#isLooking = false;
    // One look says little: this machine may have been busy. Where the kernel counts, it must have sent something again.
    if (before === null || this.#segments.at - before.at > AGAIN_MS) return;
    if (before.again !== null && again !== null && again - before.again < FEW_SENT_AGAIN) return;
    if (await this.#isQueued(other, least, PROBES)) return;
    this.#lossyAt = performance.now();
    this.want();
  }

  /** Takes another link into use while there is no queue, and leaves one when there is. */
  async #adjust(): Promise<void> {
    this.want();
    const [quiet, least] = [this.#quiet, this.#roundTrip];
    if (quiet === null || least === null) return;
    const flights = this.#bulk.map((one) => one.flight(performance.now(), least) ?? 0);
    if (Math.max(...flights) >= 2 * SMALL_FLIGHT) {
      // TCP is quick again; streams that are spread stay so.
      this.#lossyAt = Number.NEGATIVE_INFINITY;
      return;
    }
    const isQueued = await this.#isQueued(quiet, least, PROBES_BESIDE);
    this.#inUse = Math.max(FEWEST_FOR_ONE, Math.min(this.#inUse + (isQueued ? -1 : 1), LINKS_FOR_ONE));
  }

  /** Whether packets wait on the way, as far as the least round trip of some says. */
  async #isQueued(other: Connection, least: number, probes: number): Promise<boolean> {
    this.#isLooking = true;
    const measured: number[] = [];
    for (let probe = 0; probe < probes && !other.hasEnded; probe++)
      measured.push((await this.user.probe(other, PROBE_MS)) ?? Number.POSITIVE_INFINITY);
    this.#isLooking = false;
    this.#nextLookAt = performance.now() + LOOK_MS;
    return other.hasEnded || Math.min(...measured) > QUEUED * least + QUEUED_MS;
  }

  #active(all: Iterable<{ readonly isActive: boolean }>): number {
    return [...all].filter(({ isActive }) => isActive).length;
  }

  /** There is bulk: asks for more links where packets are lost. */
  want(): void {
    if (!this.isLossy) return;
    const spread = Math.max(1, this.#active(this.#outlets), this.#active(this.#inlets.values()));
    // And one for what is little.
    const wanted = Math.min(this.most, LINKS_FOR_ONE + spread);
    if (wanted > this.#links.size) this.user.wantsLinks(wanted);
  }

  #inletFor(head: Buffer): SpreadInlet | null {
    const stream = this.#links.get(head.readUInt16BE(0))?.spreadable(head.readUInt32BE(2));
    if (!stream) return null;
    const known = this.#inlets.get(stream);
    if (known) return known;
    this.#lossyAt = performance.now();
    const inlet = new SpreadInlet(stream, () => void this.#inlets.delete(stream));
    this.#inlets.set(stream, inlet);
    setImmediate(() => this.want());
    return inlet;
  }

  get #inOrder(): Connection[] {
    return [...this.#links].sort(([one], [other]) => one - other).map(([, connection]) => connection);
  }

  /** The second link: it was opened for what is little, beside bulk on the first. */
  get #quiet(): Connection | null {
    return this.#inOrder[1] ?? null;
  }

  get #bulk(): Connection[] {
    const further = Math.max(1, this.#active(this.#outlets)) - 1;
    return this.#inOrder.filter((_, at) => at !== 1).slice(0, this.#inUse + further);
  }

  get #roundTrip(): number | null {
    const known = [...this.#links.values()].flatMap(({ roundTrip }) => roundTrip.least ?? []);
    return known.length === 0 ? null : Math.min(...known);
  }
}
