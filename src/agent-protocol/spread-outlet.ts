import type { Channel, Outlet } from './channel.ts';
import type { Connection, Puller } from './connection.ts';
import { StreamType, streamPrefix } from './messages.ts';
import { laneHeader, MAX_SEGMENT, SEGMENT_HEADER, segmentHeader } from './segments.ts';

/** With less to send, one link will do. */
const LITTLE = 16_384;
/** Lanes end so long after the last segment, in milliseconds: idle links can close. */
const QUIET_MS = 1000;
/** A lane may keep this much of its window unused: smaller segments are not worth their headers. */
const LEAST_ROOM = 4_096;

interface LinkChoice {
  /** The links for bulk, and the one for what is little. */
  readonly bulk: readonly Connection[];
  readonly quiet: Connection;
  readonly linkNumber: number;
  /** All has arrived, or nothing will. */
  over(): void;
}

/**
 * Sends what a stream has to send as segments on several links. Each link takes the next segment when the one before it has left
 * its socket: a link on which packets are lost takes fewer.
 */
export class SpreadOutlet implements Outlet, Puller {
  /** At most one on each link. */
  readonly #lanes = new Map<Connection, Channel>();
  readonly #ending = new Set<Channel>();
  #timer: NodeJS.Timeout | null = null;
  #isOver = false;

  constructor(
    private readonly stream: Channel,
    private readonly links: LinkChoice,
  ) {}

  uses(connection: Connection): boolean {
    return this.#lanes.has(connection);
  }

  /** Whether it has sent something lately. */
  get isActive(): boolean {
    return this.#lanes.size > 0;
  }

  wake(): void {
    if (this.#isOver) return;
    const { bulk, quiet } = this.links;
    const isLittle =
      this.stream.waiting < LITTLE && [...this.#lanes.keys()].every((connection) => connection === quiet);
    if (isLittle) quiet.wantsPull(this);
    else for (const connection of [...bulk].sort((one, other) => one.load - other.load)) connection.wantsPull(this);
  }

  pull(connection: Connection): boolean {
    if (this.#isOver || connection.hasEnded) return false;
    const { bulk, quiet } = this.links;
    if (connection !== quiet && !bulk.includes(connection)) return false;
    const opened = this.#lanes.get(connection);
    // Its peer has yet to pass all of it on: another one would have a window of its own. Its end pulls again.
    if (opened && this.#ending.has(opened)) return false;
    const lane = opened ?? connection.channel();
    const room = lane.sendable - SEGMENT_HEADER;
    // Credit pulls again.
    if (room < LEAST_ROOM) return false;
    const piece = this.stream.take(Math.min(MAX_SEGMENT, room));
    if (piece === null) return false;
    if (!opened) this.#begin(lane, connection);
    lane.write(segmentHeader(piece));
    for (const bytes of piece.bytes) lane.write(bytes);
    if (piece.end === 'none') this.#endLater();
    else this.#finish();
    this.stream.taken(piece.end);
    return true;
  }

  closed(isLost: boolean): void {
    this.#finish(isLost);
  }

  /** Opens a lane with the next write. */
  #begin(lane: Channel, connection: Connection): void {
    this.#lanes.set(connection, lane);
    lane.write(Buffer.concat([streamPrefix(StreamType.lane), laneHeader(this.links.linkNumber, this.stream.id)]));
    lane.receiver = {
      onData: () => this.stream.fail(new Error('a lane got data that its peer has to receive')),
      onEnd: () => lane.end(),
      onCredit: () => this.wake(),
      onClosed: (error) => {
        this.#lanes.delete(connection);
        this.#ending.delete(lane);
        // What it carried may not have arrived.
        if (error) this.stream.fail(error);
        else if (this.#isOver) this.#endIfArrived();
        else if (this.stream.waiting > 0) this.wake();
      },
      onCut: (reason) => this.stream.fail(reason),
    };
    connection.open(lane);
  }

  #endLater(): void {
    if (this.#timer !== null) return void this.#timer.refresh();
    this.#timer = setTimeout(() => this.#endLanes(), QUIET_MS).unref();
  }

  #endLanes(): void {
    this.#timer = null;
    if (this.stream.waiting > 0) {
      this.#endLater();
      return;
    }
    for (const lane of this.#lanes.values()) {
      this.#ending.add(lane);
      lane.end();
    }
  }

  #finish(isLost = false): void {
    if (this.#isOver && !isLost) return;
    this.#isOver = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    for (const lane of [...this.#lanes.values()]) {
      if (isLost) lane.abort();
      else lane.end();
    }
    this.#endIfArrived();
  }

  #endIfArrived(): void {
    if (this.#lanes.size > 0) return;
    this.links.over();
    this.stream.arrived();
  }
}
