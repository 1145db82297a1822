import type { ClientRequest } from './client-message.ts';
import type { UpstreamLink } from './upstream-link.ts';

/**
 * A request's body on its way to the upstream. It can be given up without harm: when the upstream answers before it
 * has read everything, the client's connection must live on to carry the answer.
 */
export class RequestBody {
  /** How it is delimited; a length is in the head. */
  readonly framing: 'length' | 'chunked';
  readonly #req: ClientRequest;
  #to: UpstreamLink | null = null;
  /** What was read before there was anybody to send it to. */
  #ahead: Buffer[] = [];
  #aheadSize = 0;
  #readToEnd = false;

  constructor(req: ClientRequest) {
    this.#req = req;
    this.framing = req.headers['transfer-encoding'] === undefined ? 'length' : 'chunked';
  }

  /**
   * Reads the body before it is sent.
   *
   * @param limit bytes that are kept in memory
   * @returns null when it is longer, or the client breaks off
   */
  async read(limit: number): Promise<Buffer | null> {
    if (Number(this.#req.headers['content-length'] ?? 0) > limit) return null;
    if (!this.#readToEnd && this.#aheadSize <= limit) await this.#readAhead(limit);
    return this.#readToEnd && this.#aheadSize <= limit ? Buffer.concat(this.#ahead) : null;
  }

  #readAhead(limit: number): Promise<void> {
    const req = this.#req;
    if (req.destroyed) return Promise.resolve();
    return new Promise((resolve) => {
      const finish = () => {
        req.pause().off('data', onData).off('end', onEnd).off('close', finish);
        resolve();
      };
      const onData = (chunk: Buffer) => {
        this.#ahead.push(chunk);
        this.#aheadSize += chunk.length;
        if (this.#aheadSize > limit) finish();
      };
      const onEnd = () => {
        this.#readToEnd = true;
        finish();
      };
      req
        .on('data', onData)
        .on('end', onEnd)
        .on('close', finish)
        .on('error', () => {});
      req.resume();
    });
  }

  /** Begins to send, as fast as the connection takes it. */
  sendTo(connection: UpstreamLink): void {
    this.#to = connection;
    const ahead = this.#ahead;
    this.#ahead = [];
    for (const chunk of ahead) this.#onData(chunk);
    if (this.#readToEnd) {
      this.#onEnd();
      return;
    }
    // A break of the client's connection is noticed by its response.
    this.#req
      .on('data', this.#onData)
      .on('end', this.#onEnd)
      .on('error', () => {});
    if (ahead.length > 0) this.#req.resume();
  }

  /** Goes on after the connection was full. */
  drain(): void {
    if (this.#to) this.#req.resume();
  }

  /** Sends no more; the rest is read and forgotten, so that the client's connection can serve the next request. */
  stop(): void {
    this.#to = null;
    this.#ahead = [];
    this.#req.off('data', this.#onData).off('end', this.#onEnd);
    if (!this.#req.destroyed) this.#req.resume();
  }

  readonly #onData = (chunk: Buffer): void => {
    if (!this.#to?.write(chunk)) this.#req.pause();
  };
  readonly #onEnd = (): void => {
    this.#to?.finishRequest(this.#req.rawTrailers);
    this.#to = null;
  };
}
