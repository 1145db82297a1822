import type { MemoryBudget } from '../../../lib/memory-budget.ts';
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
  #pieces: Buffer[] = [];
  #length = 0;
  #end: End | null = null;
  #reading: Reading | null = null;
  #counted = 0;

  constructor(private readonly memory: () => MemoryBudget) {}

  add(piece: Buffer): void {
    this.#pieces.push(piece);
    this.#length += piece.length;
    this.#check();
  }

  end(end: End): void {
    this.#end = end;
    this.#check();
  }

  /** @returns null when the body is longer than the limit in bytes, finds no room, is incomplete or does not arrive in time */
  async read(limit: number): Promise<Buffer | null> {
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
    const pieces = body === undefined ? this.#pieces : [body].filter(({ length }) => length > 0);
    this.discard();
    for (const piece of pieces) if (!to.isOver) to.onBody(piece);
    if (this.#end === null || to.isOver) return;
    if ('error' in this.#end) to.onFailed(this.#end.error);
    else to.onComplete(this.#end.trailers);
  }

  discard(): void {
    this.#settle(null);
    this.#pieces = [];
    if (this.#counted > 0) this.memory().release(this.#counted);
    this.#counted = 0;
  }

  #check(): void {
    if (this.#reading === null) return;
    if (this.#length > this.#reading.limit || !this.#hasRoom() || (this.#end && 'error' in this.#end)) {
      this.#settle(null);
    } else if (this.#end !== null) this.#settle(Buffer.concat(this.#pieces, this.#length));
  }

  #hasRoom(): boolean {
    const more = this.#length - this.#counted;
    if (more <= 0) return true;
    if (!this.memory().leavesRoom(more)) return false;
    this.memory().reserve(more);
    this.#counted += more;
    return true;
  }

  #settle(body: Buffer | null): void {
    this.#reading?.settle(body);
    this.#reading = null;
  }
}
