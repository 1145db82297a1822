import type { Socket } from 'node:net';
import { ClientShares } from '../../../lib/network/client-shares.ts';
import { DeadlineSweep, type Timed } from '../../../lib/time/deadline-sweep.ts';
import { PROGRESS_MS, Progress } from '../../../lib/time/progress.ts';
import { resetConnection } from '../http/reset-connection.ts';

export interface ConnectionSlotsOptions {
  /** Simultaneous connections. */
  limit: number;
  /** Closes one idle connection; returns false when all are busy. */
  closeIdle(): boolean;
  /** Milliseconds; see {@link ConnectionSlots.expectProgress}. */
  progressTimeout?: number;
}

/** Milliseconds between checks of progress. */
const SWEEP_MS = 5000;

/**
 * Limits the client connections of a port. When all slots are taken, a new connection replaces the longest idle one; or
 * that with the least progress of the network that holds most, if that is at least two more than the client's own; or the
 * oldest that may be evicted.
 */
export class ConnectionSlots {
  readonly #slots = new Map<Socket, Slot>();
  readonly #shares = new ClientShares<Slot>();
  readonly #sweep: DeadlineSweep<Slot>;

  constructor(private readonly options: ConnectionSlotsOptions) {
    this.#sweep = new DeadlineSweep(Math.min(SWEEP_MS, Math.ceil((options.progressTimeout ?? PROGRESS_MS) / 4)));
  }

  /**
   * Takes a slot until the connection closes.
   *
   * @returns false when all slots are taken; the new connection has been reset then
   */
  take(socket: Socket): boolean {
    const { limit, closeIdle } = this.options;
    const address = socket.remoteAddress;
    if (this.#slots.size >= limit && !closeIdle() && !this.#evictFor(address)) {
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

  /** The connection has yet to prove useful: it may be closed for another one. */
  allowEviction(socket: Socket): void {
    const slot = this.#slots.get(socket);
    if (slot) slot.evictable = true;
  }

  preventEviction(socket: Socket): void {
    const slot = this.#slots.get(socket);
    if (slot) slot.evictable = false;
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

  #evictFor(address: string | undefined): boolean {
    const victim = leastProgress(this.#shares.excessFor(address)) ?? this.#oldestEvictable();
    victim?.evict();
    return victim !== undefined;
  }

  #oldestEvictable(): Slot | undefined {
    for (const slot of this.#slots.values()) if (slot.evictable && !slot.evicted) return slot;
    return undefined;
  }
}

/** One connection and what it has moved. */
class Slot implements Timed {
  evictable = false;
  evicted = false;
  isProtected = false;
  owesProgress = false;
  /** When bytes last moved, in milliseconds of `performance.now()`. */
  movedAt = performance.now();
  #moved = 0;
  readonly #taken: Progress;

  constructor(
    private readonly socket: Socket,
    progressTimeout: number,
  ) {
    this.#taken = new Progress(progressTimeout, this.movedAt, 0);
  }

  checkTime(now: number): void {
    const { bytesRead } = this.socket;
    const { written, queued } = outputOf(this.socket);
    const taken = written - queued;
    if (bytesRead + taken !== this.#moved) {
      this.#moved = bytesRead + taken;
      this.movedAt = now;
    }
    if (queued === 0 || !this.owesProgress) this.#taken.restart(now, taken);
    else if (this.#taken.isStalled(now, taken)) this.evict();
  }

  evict(): void {
    this.evicted = true;
    resetConnection(this.socket);
  }
}

/** Handshakes come before others: they have yet to prove useful. */
function leastProgress(slots: ReadonlySet<Slot>): Slot | undefined {
  let least: Slot | undefined;
  for (const slot of slots) {
    if (slot.evicted || slot.isProtected) continue;
    if (slot.evictable) return slot;
    if (least === undefined || slot.movedAt < least.movedAt) least = slot;
  }
  return least;
}

/** What the system was given to send, and how much of it waits: Node hides what TLS and HTTP/2 write. */
function outputOf(socket: Socket): { written: number; queued: number } {
  const { _handle: handle } = socket as Socket & { _handle?: { bytesWritten: number; writeQueueSize: number } | null };
  return { written: handle?.bytesWritten ?? 0, queued: handle?.writeQueueSize ?? 0 };
}
