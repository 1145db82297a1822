import { totalmem } from 'node:os';
import { getHeapStatistics } from 'node:v8';
import { BoundedMap } from './bounded-map.ts';

/** Bytes of the machine, or of the container when that has fewer. */
export function availableMemory(): number {
  // 0 or more than the machine has: there is no limit.
  return Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY);
}

/** Bytes that JavaScript objects may take. */
export function availableHeap(): number {
  return Math.min(availableMemory(), getHeapStatistics().heap_size_limit);
}

/** More owners than hold anything at the same time. */
const MAX_SHARES = 10_000;

/** Holds memory that it can give back. */
export interface MemoryUser {
  /** Gives some of it back. */
  reclaim(): void;
}

/**
 * Limits what its users hold together: bytes, or whatever they count. There are two ways to count. What is held already is
 * reported: beyond the limit, the user with the most gives some back. What may be refused is reserved: nobody gives anything
 * back for it. Owners such as client networks and authtokens have shares, which are budgets of their own.
 */
export class MemoryBudget implements MemoryUser {
  readonly #held = new Map<MemoryUser, number>();
  #shares: BoundedMap<string, MemoryBudget> | null = null;
  #total = 0;
  #reserved = 0;

  /** @param whole the budget that this one is a share of */
  constructor(
    private readonly limit: number,
    private readonly whole: MemoryBudget | null = null,
  ) {}

  /** The share of an owner: half of the limit. */
  shareOf(owner: string): MemoryBudget {
    this.#shares ??= new BoundedMap(MAX_SHARES);
    const share = this.#shares.get(owner) ?? this.newShare();
    this.#shares.set(owner, share);
    return share;
  }

  /** A further share of half of the limit, for an owner who asks once. */
  newShare(): MemoryBudget {
    return new MemoryBudget(this.limit / 2, this);
  }

  /** Bytes that its users hold together. */
  get held(): number {
    return this.#total;
  }

  get reserved(): number {
    return this.#reserved;
  }

  /** Bytes until the limit, if all arrive that may. */
  get room(): number {
    const own = Math.max(0, this.#left);
    return this.whole === null ? own : Math.min(own, this.whole.room);
  }

  /**
   * Whether a share can take so many bytes and leave as much for others as it has then: alone a half, besides another one a
   * third each. So there is always room for one more, however much a few of them want.
   */
  leavesRoom(bytes: number): boolean {
    const left = (this.whole ?? this).#left;
    return this.#total + this.#reserved + bytes <= left - bytes;
  }

  /** Counts bytes that somebody holds or may send from now on, whether or not there is room. */
  reserve(bytes: number): void {
    this.#reserved += bytes;
    this.whole?.reserve(bytes);
  }

  /** @returns false when there is no room; then nothing is reserved */
  tryReserve(bytes: number): boolean {
    if (bytes > this.room) return false;
    this.reserve(bytes);
    return true;
  }

  /** Gives reserved bytes back. */
  release(bytes: number): void {
    this.reserve(-bytes);
  }

  /** Records how many bytes a user holds now. */
  report(user: MemoryUser, bytes: number): void {
    const before = this.#held.get(user) ?? 0;
    this.#total += bytes - before;
    if (bytes === 0) this.#held.delete(user);
    else this.#held.set(user, bytes);
    this.whole?.report(this, this.#total);
    if (bytes > before && this.#total > this.limit) this.reclaim();
  }

  /** The user with the most gives some back. */
  reclaim(): void {
    let most: MemoryUser | null = null;
    let bytes = 0;
    for (const [user, held] of this.#held) {
      if (held <= bytes) continue;
      most = user;
      bytes = held;
    }
    most?.reclaim();
  }

  get #left(): number {
    return this.limit - this.#total - this.#reserved;
  }
}

/** A budget has no room for what somebody needs. */
export class NoRoom extends Error {
  constructor() {
    super('there is no memory left for it');
    this.name = 'NoRoom';
  }
}

/** What one piece of work has reserved of a budget. */
export class Reservation {
  #bytes = 0;

  /** @param budget null: nobody counts */
  constructor(private readonly budget: MemoryBudget | null) {}

  /** Bytes that are reserved now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Reserves more when that leaves room for others. @returns false when it does not: nothing more is reserved then */
  tryReserve(bytes: number): boolean {
    if (this.budget?.leavesRoom(bytes) === false) return false;
    this.reserve(bytes);
    return true;
  }

  /** Reserves more. @throws {NoRoom} when that leaves no room for others */
  require(bytes: number): void {
    if (!this.tryReserve(bytes)) throw new NoRoom();
  }

  /** Counts more, whether or not there is room. */
  reserve(bytes: number): void {
    this.budget?.reserve(bytes);
    this.#bytes += bytes;
  }

  /** Gives everything back but so many bytes. */
  release(but = 0): void {
    const less = this.#bytes - but;
    if (less <= 0) return;
    this.budget?.release(less);
    this.#bytes = but;
  }
}
