import type { Socket } from 'node:net';
import { MemoryBudget } from '../../../lib/memory-budget.ts';
import { clientNetwork } from '../../../lib/network/ip-address.ts';
import type { ClientBody, ClientRequest } from '../http/client-message.ts';
import { ByteBlocks } from '../http/header-block.ts';
import type { UpstreamLink } from '../upstreams/upstream-link.ts';

/** Milliseconds that a policy waits for a body: HTTP/2 streams have no time limit of their own. */
export const READ_MS = 60_000;

/** All bodies that policies hold in memory, by network of the client; one that finds no room counts as too long. */
const memory = new MemoryBudget(64 * 1_048_576);

/** The share of a client's network in the memory for bodies that policies read. */
export function bodyMemory({ remoteAddress = '' }: Pick<Socket, 'remoteAddress'>): MemoryBudget {
  return memory.shareOf(clientNetwork(remoteAddress));
}

/** Streams a request's body to the upstream. It can stop: the client's connection stays open for an early response. */
export class RequestBody {
  readonly framing: 'length' | 'chunked';
  readonly #req: ClientRequest;
  readonly #from: ClientBody;
  #to: UpstreamLink | null = null;
  readonly #buffered = new ByteBlocks();
  #readToEnd = false;
  #gaveUp = false;
  #counted = 0;
  #memory: MemoryBudget | null = null;
  readonly #readMs: number;
  readonly #onData = (chunk: Buffer): void => {
    if (!this.#to?.write(chunk)) this.#from.pause();
  };
  readonly #onEnd = (): void => {
    this.#to?.finishRequest(this.#req.rawTrailers);
    this.#to = null;
  };

  constructor(req: ClientRequest, from: ClientBody, readMs = READ_MS) {
    this.#readMs = readMs;
    this.#req = req;
    this.#from = from;
    this.framing = req.headers['content-length'] === undefined ? 'chunked' : 'length';
  }

  /** @returns null when it is longer than the limit in bytes, does not arrive in time, or the connection is lost */
  async read(limit: number): Promise<Buffer | null> {
    if (Number(this.#req.headers['content-length'] ?? 0) > limit) return null;
    if (!this.#readToEnd && !this.#gaveUp && this.#buffered.length <= limit) await this.#readAhead(limit);
    return this.#readToEnd && this.#buffered.length <= limit ? this.#buffered.joined() : null;
  }

  #readAhead(limit: number): Promise<void> {
    const from = this.#from;
    if (from.destroyed) return Promise.resolve();
    const share = bodyMemory(this.#req.socket);
    this.#memory = share;
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
        const isTooMuch = !share.leavesRoom(bytes);
        // It is held all the same, until it is sent on.
        share.reserve(bytes);
        this.#counted += bytes;
        if (isTooMuch) giveUp();
        else if (this.#buffered.length > limit) finish();
      };
      const giveUp = () => {
        this.#gaveUp = true;
        finish();
      };
      const timer = setTimeout(giveUp, this.#readMs).unref();
      const onEnd = () => {
        this.#readToEnd = true;
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

  /** Sends another body than the one that was read whole. */
  replace(body: Buffer): void {
    this.#release();
    this.#buffered.add(body);
    this.#counted = this.#buffered.held;
    this.#memory?.reserve(this.#counted);
  }

  #release(): void {
    this.#buffered.clear();
    this.#memory?.release(this.#counted);
    this.#counted = 0;
  }

  sendTo(connection: UpstreamLink): void {
    this.#to = connection;
    const buffered = this.#buffered.joined();
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
    if (buffered.length > 0) this.#from.resume();
  }

  drain(): void {
    if (this.#to) this.#from.resume();
  }

  /** Stops sending. The rest is read and discarded, so that the client's connection can serve the next request. */
  stop(): void {
    this.#to = null;
    this.#release();
    this.#from.off('data', this.#onData).off('end', this.#onEnd);
    if (!this.#from.destroyed) this.#from.resume();
  }
}
