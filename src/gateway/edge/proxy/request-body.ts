import type { SharedRate } from '../../../lib/bandwidth.ts';
import { ByteBlocks } from '../../../lib/byte-blocks.ts';
import { MemoryBudget, Reservation } from '../../../lib/memory-budget.ts';
import { clientNetwork } from '../../../lib/network/ip-address.ts';
import type { ClientBody, ClientRequest } from '../http/client-message.ts';
import type { UpstreamLink } from '../upstreams/upstream-link.ts';
import { PacedBody } from './paced-body.ts';

/** Milliseconds that a policy waits for a body: HTTP/2 streams have no time limit of their own. */
export const READ_MS = 60_000;

/** Bytes of a body that are kept for another member of a pool until an upstream has answered. */
const MOST_KEPT = 64 * 1024;

/** All bodies that policies hold in memory, as they came and decoded; one that finds no room counts as too long. */
const memory = new MemoryBudget(64 * 1_048_576);

/** The share of a client's network in the memory for bodies that policies read. @param address of the client */
export function bodyMemory(address: string): MemoryBudget {
  return memory.shareOf(clientNetwork(address));
}

/** Streams a request's body to the upstream. It can stop: the client's connection stays open for an early response. */
export class RequestBody {
  readonly framing: 'length' | 'chunked';
  readonly #req: ClientRequest;
  readonly #from: ClientBody;
  #to: Pick<UpstreamLink, 'write' | 'finishRequest'> | null = null;
  /** That, if it has a rate. */
  #paced: PacedBody | null = null;
  #buffered = new ByteBlocks();
  #readToEnd = false;
  /** The body that a policy has read to its end, until it is sent. */
  #whole: Buffer | null = null;
  #gaveUp = false;
  #held: Reservation | null = null;
  #isReplaced = false;
  /** Whether it has to be resumed. */
  #isPaused = false;
  /** What has been sent, for as long as it may have to be sent again; null: it is not kept. */
  #kept: ByteBlocks | null = null;
  readonly #onData = (chunk: Buffer): void => {
    if (this.#kept !== null) this.#keep(this.#kept, chunk);
    if (!this.#to?.write(chunk)) this.#from.pause();
  };
  readonly #onEnd = (): void => {
    this.#readToEnd = true;
    this.#to?.finishRequest(this.#req.rawTrailers);
    this.#to = null;
  };

  /** @param address of the client, whose network pays for what is held */
  constructor(
    req: ClientRequest,
    from: ClientBody,
    private readonly address: string,
    private readonly readMs = READ_MS,
  ) {
    this.#req = req;
    this.#from = from;
    this.framing = req.headers['content-length'] === undefined ? 'chunked' : 'length';
  }

  /** @returns null when it is longer than the limit in bytes, does not arrive in time, or the connection is lost */
  async read(limit: number): Promise<Buffer | null> {
    if (Number(this.#req.headers['content-length'] ?? 0) > limit) return null;
    if (!this.#readToEnd && !this.#gaveUp && this.#buffered.length <= limit) await this.#readAhead(limit);
    return this.#whole !== null && this.#whole.length <= limit ? this.#whole : null;
  }

  #readAhead(limit: number): Promise<void> {
    const from = this.#from;
    if (from.destroyed) return Promise.resolve();
    const held = this.#reservation();
    return new Promise((resolve) => {
      const finish = () => {
        clearTimeout(timer);
        from.pause().off('data', onData).off('end', onEnd).off('close', finish);
        resolve();
      };
      const onData = (chunk: Buffer) => {
        const before = this.#buffered.held;
        this.#buffered.add(chunk);
        const bytes = this.#buffered.held - before;
        if (!held.tryReserve(bytes)) {
          // It is held all the same, until it is sent on.
          held.reserve(bytes);
          giveUp();
        } else if (this.#buffered.length > limit) finish();
      };
      const giveUp = () => {
        this.#gaveUp = true;
        finish();
      };
      const timer = setTimeout(giveUp, this.readMs).unref();
      const onEnd = () => {
        this.#readToEnd = true;
        this.#whole = this.#buffered.joined();
        this.#buffered.clear();
        finish();
      };
      from
        .on('data', onData)
        .on('end', onEnd)
        .on('close', finish)
        .on('error', () => {})
        .on('close', () => {
          // A body that arrived whole is held until it is sent or not wanted any more.
          if (!this.#readToEnd) this.#release();
        });
      from.resume();
    });
  }

  /** Sends another body than the one that was read whole. @returns false when there is no room for it */
  replace(body: Buffer): boolean {
    this.#release();
    this.#isReplaced = true;
    if (this.#held?.tryReserve(body.length) === false) return false;
    this.#whole = body;
    return true;
  }

  #reservation(): Reservation {
    this.#held ??= new Reservation(bodyMemory(this.address));
    return this.#held;
  }

  /** From now on, keeps what is sent, until it is long. What a policy has written is for one upstream only. */
  keepSent(): void {
    if (!this.#isReplaced) this.#kept = new ByteBlocks();
  }

  #keep(kept: ByteBlocks, chunk: Buffer): void {
    const before = kept.held;
    kept.add(chunk);
    if (kept.length > MOST_KEPT || !this.#reservation().tryReserve(kept.held - before)) this.forgetSent();
  }

  /** An upstream has got it. */
  forgetSent(): void {
    if (this.#kept === null) return;
    this.#kept = null;
    this.#held?.release();
  }

  /** Whether all that was sent is kept, so that it can be sent to another upstream. */
  get isKept(): boolean {
    return this.#kept !== null;
  }

  /** Starts again, for another upstream: the last one has got nothing of it. */
  rewind(): void {
    this.#to = null;
    this.#paced?.stop();
    this.#from.pause().off('data', this.#onData).off('end', this.#onEnd);
    this.#buffered = this.#kept ?? new ByteBlocks();
    this.#kept = null;
    if (this.#readToEnd) this.#whole = this.#buffered.joined();
    this.#isPaused = true;
  }

  #release(): void {
    this.#buffered.clear();
    this.#whole = null;
    this.#held?.release();
  }

  /** @param rate of the client; null: any number of bytes */
  sendTo(connection: UpstreamLink, rate: SharedRate | null = null): void {
    this.#paced = rate && new PacedBody(connection, rate, () => this.#readOn());
    this.#to = this.#paced ?? connection;
    const buffered = this.#whole ?? this.#buffered.joined();
    const wasRead = this.#isPaused || buffered.length > 0;
    this.#isPaused = false;
    this.#release();
    if (buffered.length > 0) this.#onData(buffered);
    if (this.#readToEnd) {
      this.#onEnd();
      return;
    }
    // The response reports a lost client connection.
    this.#from
      .on('data', this.#onData)
      .on('end', this.#onEnd)
      .on('error', () => {});
    if (wasRead) this.#from.resume();
  }

  /** Whether the upstream gets more of it. */
  get isUnderWay(): boolean {
    return this.#to !== null;
  }

  drain(): void {
    if (this.#paced) this.#paced.drained();
    else this.#readOn();
  }

  #readOn(): void {
    if (this.#to) this.#from.resume();
  }

  /** Stops sending. The rest is read and discarded, so that the client's connection can serve the next request. */
  stop(): void {
    this.#to = null;
    this.#paced?.stop();
    this.#kept = null;
    this.#release();
    this.#from.off('data', this.#onData).off('end', this.#onEnd);
    if (!this.#from.destroyed) this.#from.resume();
  }
}
