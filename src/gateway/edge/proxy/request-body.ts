import type { ClientBody, ClientRequest } from '../http/client-message.ts';
import type { UpstreamLink } from '../upstreams/upstream-link.ts';

/** Milliseconds that a policy waits for a body that it has to see: streams of HTTP/2 have no end of their own. */
const READ_MS = 60_000;

/** Bytes of all bodies together that are kept for policies; what comes on top of them is as good as too long. */
const MAX_AHEAD = 64 * 1_048_576;
let aheadOfAll = 0;

/**
 * A request's body on its way to the upstream. It can be given up without harm: when the upstream answers before it
 * has read everything, the client's connection must live on to carry the answer.
 */
export class RequestBody {
  /** How it is delimited; a length is in the head. */
  readonly framing: 'length' | 'chunked';
  readonly #req: ClientRequest;
  readonly #from: ClientBody;
  #to: UpstreamLink | null = null;
  /** What was read before there was anybody to send it to. */
  #ahead: Buffer[] = [];
  #aheadSize = 0;
  #readToEnd = false;
  #gaveUp = false;
  /** How much of it is counted among all that are kept. */
  #counted = 0;
  readonly #readMs: number;

  /**
   * @param from the request's body
   * @param readMs milliseconds that {@link read} waits
   */
  constructor(req: ClientRequest, from: ClientBody, readMs = READ_MS) {
    this.#readMs = readMs;
    this.#req = req;
    this.#from = from;
    this.framing = req.headers['content-length'] === undefined ? 'chunked' : 'length';
  }

  /**
   * Reads the body before it is sent.
   *
   * @param limit bytes that are kept in memory
   * @returns null when it is longer, does not arrive in time, or the client breaks off
   */
  async read(limit: number): Promise<Buffer | null> {
    if (Number(this.#req.headers['content-length'] ?? 0) > limit) return null;
    if (!this.#readToEnd && !this.#gaveUp && this.#aheadSize <= limit) await this.#readAhead(limit);
    return this.#readToEnd && this.#aheadSize <= limit ? Buffer.concat(this.#ahead) : null;
  }

  #readAhead(limit: number): Promise<void> {
    const from = this.#from;
    if (from.destroyed) return Promise.resolve();
    return new Promise((resolve) => {
      const finish = () => {
        clearTimeout(timer);
        from.pause().off('data', onData).off('end', onEnd).off('close', finish);
        resolve();
      };
      const onData = (chunk: Buffer) => {
        this.#ahead.push(chunk);
        this.#aheadSize += chunk.length;
        this.#counted += chunk.length;
        aheadOfAll += chunk.length;
        if (aheadOfAll > MAX_AHEAD) giveUp();
        else if (this.#aheadSize > limit) finish();
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
        .on('close', () => this.#release());
      from.resume();
    });
  }

  #takeAhead(): Buffer[] {
    const ahead = this.#ahead;
    this.#ahead = [];
    this.#release();
    return ahead;
  }

  #release(): void {
    aheadOfAll -= this.#counted;
    this.#counted = 0;
  }

  /** Begins to send, as fast as the connection takes it. */
  sendTo(connection: UpstreamLink): void {
    this.#to = connection;
    const ahead = this.#takeAhead();
    for (const chunk of ahead) this.#onData(chunk);
    if (this.#readToEnd) {
      this.#onEnd();
      return;
    }
    // A break of the client's connection is noticed by its response.
    this.#from
      .on('data', this.#onData)
      .on('end', this.#onEnd)
      .on('error', () => {});
    if (ahead.length > 0) this.#from.resume();
  }

  /** Goes on after the connection was full. */
  drain(): void {
    if (this.#to) this.#from.resume();
  }

  /** Sends no more; the rest is read and forgotten, so that the client's connection can serve the next request. */
  stop(): void {
    this.#to = null;
    this.#takeAhead();
    this.#from.off('data', this.#onData).off('end', this.#onEnd);
    if (!this.#from.destroyed) this.#from.resume();
  }

  readonly #onData = (chunk: Buffer): void => {
    if (!this.#to?.write(chunk)) this.#from.pause();
  };
  readonly #onEnd = (): void => {
    this.#to?.finishRequest(this.#req.rawTrailers);
    this.#to = null;
  };
}
