import type { ClientRequest } from './client-message.ts';
import { passableTrailers } from './headers.ts';
import type { UpstreamConnection } from './upstream-connection.ts';

const CRLF = Buffer.from('\r\n');

/**
 * A request's body on its way to the upstream. It can be given up without harm: when the upstream answers before it
 * has read everything, the client's connection must live on to carry the answer.
 */
export class RequestBody {
  /** Whether it goes in chunks; otherwise its length is in the head. */
  readonly chunked: boolean;
  readonly #req: ClientRequest;
  #to: UpstreamConnection | null = null;
  /** What was read before there was anybody to send it to. */
  #ahead: Buffer[] = [];
  #aheadSize = 0;
  #readToEnd = false;

  constructor(req: ClientRequest) {
    this.#req = req;
    this.chunked = req.headers['transfer-encoding'] !== undefined;
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
  sendTo(connection: UpstreamConnection): void {
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
    const room = this.chunked ? this.#writeChunk(chunk) : this.#to?.write(chunk);
    if (!room) this.#req.pause();
  };
  readonly #onEnd = (): void => {
    if (this.chunked) this.#writeLastChunk();
    this.#to?.finishRequest();
    this.#to = null;
  };

  #writeChunk(bytes: Buffer): boolean | undefined {
    this.#to?.write(Buffer.from(`${bytes.length.toString(16)}\r\n`, 'latin1'));
    this.#to?.write(bytes);
    return this.#to?.write(CRLF);
  }

  #writeLastChunk(): void {
    let text = '0\r\n';
    for (const [name, value] of passableTrailers(this.#req.rawTrailers)) text += `${name}: ${value}\r\n`;
    this.#to?.write(Buffer.from(`${text}\r\n`, 'latin1'));
  }
}
