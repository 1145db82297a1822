import { ByteBlocks } from '../../../lib/byte-blocks.ts';
import { type MemoryBudget, Reservation } from '../../../lib/memory-budget.ts';
import { READ_MS } from './request-body.ts';

/** Gets what was held. */
interface Receiver {
  /** Whether it wants nothing more. */
  readonly isOver: boolean;
  onBody(piece: Buffer): void;
  onComplete(trailers: string[]): void;
  onFailed(error: Error): void;
}

type End = { readonly trailers: string[] } | { readonly error: Error };

interface Reading {
  readonly limit: number;
  readonly settle: (body: Buffer | null) => void;
}

/** What arrives of a response while the edge cannot pass it on, because its policy still runs, or waits for its turn. */
export class HeldResponse {
  /** What has arrived and no policy has asked for. */
  #pieces: Buffer[] = [];
  /** What has arrived for a policy: pieces can be as small as a byte. */
  readonly #blocks = new ByteBlocks();
  /** The body that a policy has read to its end. */
  #whole: Buffer | null = null;
  #end: End | null = null;
  #reading: Reading | null = null;
  #held: Reservation | null = null;

  /** @param memory the share in the memory for bodies that policies read */
  constructor(private readonly memory: () => MemoryBudget) {}

  add(piece: Buffer): void {
    this.#pieces.push(piece);
    this.#check();
  }

  end(end: End): void {
    this.#end = end;
    this.#check();
  }

  /** @returns null when the body is longer than the limit in bytes, finds no room, is incomplete or does not arrive in time */
  async read(limit: number): Promise<Buffer | null> {
    if (this.#whole !== null) return this.#whole.length > limit ? null : this.#whole;
    const timer = setTimeout(() => this.#settle(null), READ_MS).unref();
    const body = await new Promise<Buffer | null>((settle) => {
      this.#reading = { limit, settle };
      this.#check();
    });
    clearTimeout(timer);
    return body;
  }

  /** Passes on what was held; `body` stands for that of the response. */
  passOn(to: Receiver, body: Buffer | undefined): void {
    const instead = body ?? this.#whole;
    const pieces = instead === null ? [this.#blocks.joined(), ...this.#pieces] : [instead];
    this.discard();
    for (const piece of pieces) if (!to.isOver && piece.length > 0) to.onBody(piece);
    if (this.#end === null || to.isOver) return;
    if ('error' in this.#end) to.onFailed(this.#end.error);
    else to.onComplete(this.#end.trailers);
  }

  discard(): void {
    this.#settle(null);
    this.#pieces = [];
    this.#blocks.clear();
    this.#whole = null;
    this.#held?.release();
  }

  #check(): void {
    if (this.#reading === null) return;
    if (!this.#collect() || this.#blocks.length > this.#reading.limit || (this.#end && 'error' in this.#end)) {
      this.#settle(null);
    } else if (this.#end !== null) {
      this.#whole = this.#blocks.joined();
      this.#blocks.clear();
      this.#settle(this.#whole);
    }
  }

  /** @returns false when there is no room for what has arrived */
  #collect(): boolean {
    const before = this.#blocks.held;
    for (const piece of this.#pieces) this.#blocks.add(piece);
    this.#pieces = [];
    this.#held ??= new Reservation(this.memory());
    const bytes = this.#blocks.held - before;
    if (this.#held.tryReserve(bytes)) return true;
    // It is held all the same, until it is passed on or discarded.
    this.#held.reserve(bytes);
    return false;
  }

  #settle(body: Buffer | null): void {
    this.#reading?.settle(body);
    this.#reading = null;
  }
}
