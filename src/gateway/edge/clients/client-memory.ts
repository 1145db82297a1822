import type { Readable, Writable } from 'node:stream';
import { availableHeap, MemoryBudget, type MemoryUser } from '../../../lib/memory-budget.ts';
import { clientNetwork } from '../../../lib/network/ip-address.ts';

const MIB = 1_048_576;
/** Share of the JavaScript heap for what clients have sent and the gateway has yet to pass on, and what they have yet to read. */
const SHARE = 1 / 8;
const [LEAST, MOST] = [16 * MIB, 512 * MIB];

/** Milliseconds between looks at what no event reports: unfinished heads of HTTP/2, and responses. */
export const MEMORY_SWEEP_MS = 1000;

/** Smaller changes are reported by the next sweep only: a client with one ordinary request at a time costs nothing. */
const STEP = 8192;

/** Memory of a buffer besides its bytes, and of one that waits to be written. */
const BUFFER_BYTES = 128;
const WRITE_BYTES = 384;

/** Times that TLS takes what waits to be written: as text and encrypted, each in buffers that were allocated for more. */
const TLS_COPIES = 4;

export interface MemoryHolder {
  countHeld(): number;
  destroy(): void;
}

/**
 * The budget for what all clients make the gateway hold: requests, and responses that they do not read. A network can have
 * half. Beyond a limit, the connection that holds the most is closed. @param limit bytes; omitted: a share of the heap
 */
export function clientMemory(limit = Math.min(MOST, Math.max(LEAST, availableHeap() * SHARE))): MemoryBudget {
  return new MemoryBudget(limit);
}

/** What one connection holds, counted in the share of its client's network. */
export class ConnectionMemory implements MemoryUser {
  #reported = 0;
  #share: MemoryBudget | null = null;
  #released = false;

  /** @param address of the client; undefined when its connection has ended already */
  constructor(
    private readonly memory: MemoryBudget,
    private readonly address: string | undefined,
    private readonly holder: MemoryHolder,
  ) {}

  /** @param bytes that the connection holds now; small changes are ignored */
  update(bytes: number): void {
    if (this.#released || Math.abs(bytes - this.#reported) < STEP) return;
    this.#report(bytes < STEP ? 0 : bytes);
  }

  /** @param bytes that the connection has held for a while */
  settle(bytes: number): void {
    if (!this.#released && bytes !== this.#reported) this.#report(bytes);
  }

  /** Whether a head of this size changes what is reported. */
  isAffectedBy(bytes: number): boolean {
    return bytes >= STEP || this.#reported > 0;
  }

  release(): void {
    if (this.#reported > 0) this.#report(0);
    this.#released = true;
  }

  /** Closes the connection, unless it holds less by now. */
  reclaim(): void {
    const before = this.#reported;
    this.update(this.holder.countHeld());
    if (this.#reported < before) return;
    this.release();
    this.holder.destroy();
  }

  #report(bytes: number): void {
    this.#reported = bytes;
    this.#share ??= this.memory.shareOf(clientNetwork(this.address ?? ''));
    this.#share.report(this, bytes);
  }
}

/** Bytes of memory that a stream takes for what it has received and nobody has read. */
export function unreadBytes(stream: Pick<Readable, 'readableLength'>): number {
  const { readableLength } = stream;
  return readableLength === 0 ? 0 : readableLength + unreadPieces(stream) * BUFFER_BYTES;
}

/** Bytes of memory that a stream takes for what was written to it and has not left. Measured with Node.js 20. */
export function unsentBytes(stream: Pick<Writable, 'writableLength'> & { encrypted?: boolean }): number {
  const { writableLength, encrypted = false } = stream;
  return writableLength === 0 ? 0 : writableLength * (encrypted ? TLS_COPIES : 1) + unsentPieces(stream) * WRITE_BYTES;
}

/** Node does not publish the number; the front of the array may be empty. */
function unsentPieces(stream: object): number {
  const { _writableState: state } = stream as { _writableState?: { buffered?: unknown[]; bufferedIndex?: number } };
  return (state?.buffered?.length ?? 0) - (state?.bufferedIndex ?? 0);
}

/** Node does not publish the number; later versions keep an array, the front of which may be empty. */
function unreadPieces(stream: object): number {
  const { _readableState: state } = stream as { _readableState?: { buffer: { length: number }; bufferIndex?: number } };
  return state === undefined ? 0 : state.buffer.length - (state.bufferIndex ?? 0);
}
