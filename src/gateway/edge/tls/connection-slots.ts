import type { Socket } from 'node:net';
import { ClientShares } from '../../../lib/network/client-shares.ts';
import { clientNetwork } from '../../../lib/network/ip-address.ts';
import { DeadlineSweep, PROGRESS_MS, Progress, type Timed } from '../../../lib/time/deadline.ts';
import { TokenBuckets } from '../../../lib/time/token-bucket.ts';
import { resetConnection } from '../http/error-response.ts';

interface IdleChoice {
  isFrom(address: string | undefined): boolean;
  idleFor: number;
}

const SWEEP_MS = 1000;
/** Fewer bytes in that time are a trickle. */
const USEFUL_BYTES = 240;
/** Milliseconds without more than a trickle, after which a connection is of no use. */
const USELESS_MS = 3000;
/** Milliseconds without use, after which a connection of a network that holds no more than others is closed for a new one. */
const UNUSED_MS = { handshake: 500, idle: 5000, busy: 10_000 };
const AT_ONCE = { handshake: 0, idle: 0, busy: 0 };
/** One network may replace connections in a full port this often: the part of all slots in a second, and at least two. */
const REPLACED_PER_SECOND = 1 / 25;
/** How many seconds' worth it may replace at once. */
const REPLACED_BURST_S = 5;
/** What a replacement counts that was refused: a client that repeats what failed gets its part, one that floods nothing. */
const REFUSED_COST = 1 / 4;

/**
 * Limits the client connections of a port. When all slots are taken, a new connection replaces one of the network that holds
 * most to no use, or most at all, if that is at least two more than the client's own; or one of its own network; or one that
 * has been of no use for long. Of these, an unfinished handshake goes first, then the longest idle connection, then the one
 * with the least progress.
 */
export class ConnectionSlots {
  readonly #slots = new Map<Socket, Slot>();
  readonly #shares = new ClientShares<Slot>();
  readonly #replaced: TokenBuckets;
  readonly #sweep: DeadlineSweep<Slot>;

  constructor(
    private readonly options: {
      limit: number;
      /** Closes the longest idle connection of a choice; returns false when all are busy. */
      closeIdle(choice: IdleChoice): boolean;
      onFull?(): void;
      /** Milliseconds; see {@link ConnectionSlots.expectProgress}. */
      progressTimeout?: number;
    },
  ) {
    const perSecond = Math.max(2, options.limit * REPLACED_PER_SECOND);
    const burst = perSecond * REPLACED_BURST_S;
    this.#replaced = new TokenBuckets({ burst, perMs: perSecond / 1000, maxDebt: burst });
    this.#sweep = new DeadlineSweep(Math.min(SWEEP_MS, Math.ceil((options.progressTimeout ?? PROGRESS_MS) / 4)));
  }

  /** @returns false when all slots are taken; the new connection has been reset then */
  take(socket: Socket): boolean {
    const { limit, onFull } = this.options;
    const address = socket.remoteAddress;
    if (this.#slots.size >= limit && !this.#makeRoomFor(address)) {
      onFull?.();
      resetConnection(socket);
      return false;
    }
    const slot = new Slot(socket, this.options.progressTimeout ?? PROGRESS_MS);
    this.#slots.set(socket, slot);
    this.#shares.add(address, slot);
    this.#sweep.add(slot);
    socket.once('close', () => {
      this.#slots.delete(socket);
      this.#shares.delete(address, slot);
      this.#sweep.delete(slot);
    });
    return true;
  }

  /** The connections of clients, and those that may be. */
  *clients(): Iterable<Socket> {
    for (const [socket, slot] of this.#slots) if (!slot.isProtected) yield socket;
  }

  /** @param evictable whether the connection has yet to prove useful, and may be closed for another one */
  setEvictable(socket: Socket, evictable: boolean): void {
    const slot = this.#slots.get(socket);
    if (slot) slot.evictable = evictable;
  }

  /** Its handshake begins after it had to wait for others: from now on, the client has to answer. */
  handshakeBegins(socket: Socket): void {
    const slot = this.#slots.get(socket);
    if (!slot) return;
    slot.waitsForTurn = false;
    slot.usefulAt = performance.now();
  }

  /** The connection may be that of an agent, which is never closed for others. */
  protect(socket: Socket): void {
    const slot = this.#slots.get(socket);
    if (!slot) return;
    slot.evictable = false;
    slot.isProtected = true;
  }

  /** The connection is a client's. From now on, it is reset when the client takes too little of what is sent to it. */
  expectProgress(socket: Socket): void {
    const slot = this.#slots.get(socket);
    if (!slot) return;
    slot.isProtected = false;
    slot.owesProgress = true;
  }

  /** Looks at all: this happens only when all slots are taken, and costs much less than the handshake that follows. */
  #makeRoomFor(address: string | undefined): boolean {
    const now = performance.now();
    // Without a limit, a client that only connects would take the processor, too: each connection is a handshake.
    if (!this.#replaced.of(clientNetwork(address ?? ''), now).tryTake(now, REFUSED_COST)) return false;
    return (
      this.#closeOneOf(this.#uselessShare(address, now), AT_ONCE, now) ||
      this.#closeOneOf(this.#shares.excessFor(address), AT_ONCE, now) ||
      this.#closeOneOf(this.#shares.of(address), { ...AT_ONCE, busy: UNUSED_MS.busy }, now) ||
      this.#closeOneOf(this.#slots.values(), UNUSED_MS, now)
    );
  }

  /** Those of no use of the network that has most of them: none unless it has at least two more than the client's own. */
  #uselessShare(address: string | undefined, now: number): Iterable<Slot> {
    const useless = new ClientShares<Slot>();
    for (const slot of this.#slots.values()) if (!slot.evicted && slot.isUseless(now)) useless.add(slot.network, slot);
    return useless.excessFor(address);
  }

  #closeOneOf(slots: Iterable<Slot>, unusedFor: typeof UNUSED_MS, now: number): boolean {
    const all = [...slots].filter((slot) => !slot.evicted && !slot.isProtected);
    const leastUseful = (isHandshake: boolean, ms: number) =>
      all.reduce<Slot | null>((least, slot) => {
        const isFit = slot.evictable === isHandshake && now - slot.usefulAt >= ms;
        const isOnUs = isHandshake && ms > 0 && slot.waitsForTurn;
        return isFit && !isOnUs && (least === null || slot.usefulAt < least.usefulAt) ? slot : least;
      }, null);
    const handshake = leastUseful(true, unusedFor.handshake);
    if (handshake) return handshake.evict();
    const networks = new Set(all.map(({ network }) => network));
    const isFrom = (address: string | undefined) => networks.has(clientNetwork(address ?? ''));
    if (this.options.closeIdle({ isFrom, idleFor: unusedFor.idle })) return true;
    return leastUseful(false, unusedFor.busy)?.evict() ?? false;
  }
}

class Slot implements Timed {
  evictable = false;
  evicted = false;
  /** Whether the gateway has yet to begin its handshake: a client is not to blame for that. */
  waitsForTurn = true;
  isProtected = false;
  owesProgress = false;
  readonly network: string;
  /** When it last moved more than a trickle of bytes, in milliseconds of `performance.now()`. */
  usefulAt = performance.now();
  readonly #taken: Progress;
  /** Bytes moved at the start of the current interval, and when that was. */
  #from = 0;
  #since = this.usefulAt;

  constructor(
    private readonly socket: Socket,
    progressTimeout: number,
  ) {
    this.network = clientNetwork(socket.remoteAddress ?? '');
    this.#taken = new Progress(progressTimeout, this.usefulAt, 0);
  }

  checkTime(now: number): void {
    const { bytesRead } = this.socket;
    const { written, queued } = outputOf(this.socket);
    const taken = written - queued;
    const moved = bytesRead + taken;
    if (moved - this.#from >= USEFUL_BYTES) this.usefulAt = now;
    if (now - this.#since >= SWEEP_MS) [this.#since, this.#from] = [now, moved];
    if (queued === 0 || !this.owesProgress) this.#taken.restart(now, taken);
    else if (this.#taken.isStalled(now, taken)) this.evict();
  }

  /** Whether it takes long for its handshake, or has hardly moved any bytes for a while. */
  isUseless(now: number): boolean {
    if (this.evictable) return !this.waitsForTurn && now - this.usefulAt >= UNUSED_MS.handshake;
    return now - this.usefulAt >= USELESS_MS;
  }

  evict(): true {
    this.evicted = true;
    resetConnection(this.socket);
    return true;
  }
}

/** What the system was given to send, and how much of it waits: Node hides what TLS and HTTP/2 write. */
function outputOf(socket: Socket): { written: number; queued: number } {
  const { _handle: handle } = socket as Socket & { _handle?: { bytesWritten: number; writeQueueSize: number } | null };
  return { written: handle?.bytesWritten ?? 0, queued: handle?.writeQueueSize ?? 0 };
}

export interface IdleClient {
  /** IP address; undefined when the connection has ended already. */
  readonly address: string | undefined;
  /** When its last request ended, in milliseconds of `performance.now()`; null while it carries one. */
  readonly idleSince: number | null;
  destroy(): void;
}

/** Looks at all of them: this happens only when all slots are taken, and costs much less than the handshake that follows. */
export function closeLongestIdle({ isFrom, idleFor }: IdleChoice, ...groups: Iterable<IdleClient>[]): boolean {
  let [longest, since]: [IdleClient | null, number] = [null, performance.now() - idleFor];
  for (const clients of groups) {
    for (const client of clients) {
      const { idleSince } = client;
      if (idleSince !== null && idleSince <= since && isFrom(client.address)) [longest, since] = [client, idleSince];
    }
  }
  longest?.destroy();
  return longest !== null;
}
