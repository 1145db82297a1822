import type { OutgoingHttpHeaders, ServerHttp2Stream, ServerStreamResponseOptions } from 'node:http2';
import type { TrafficCounters } from '../../../metrics/traffic-counters.ts';
import type { ClientResponse } from '../../http/client-message.ts';
import { MalformedMessage } from '../../http/header-fields.ts';
import { Http2Code } from '../../http/http2-code.ts';
import { http2Headers } from '../../http/http2-headers.ts';

export class Http2Response implements ClientResponse {
  /** Ignored: the end of a stream does not close the connection. */
  shouldKeepAlive = true;
  readonly chunkedEncoding = true;
  readonly #stream: ServerHttp2Stream;
  readonly #counters: TrafficCounters;
  #head: OutgoingHttpHeaders | null = null;
  #bodyless: boolean;
  #trailers: OutgoingHttpHeaders | null = null;
  #written = 0;
  /** Bytes that the client had taken when they last grew, and when that was. */
  #taken = 0;
  #takenAt = 0;

  /** @param bodyless whether the request is HEAD */
  constructor(stream: ServerHttp2Stream, bodyless: boolean, counters: TrafficCounters) {
    this.#stream = stream;
    this.#counters = counters;
    this.#bodyless = bodyless;
  }

  get headersSent(): boolean {
    return this.#head !== null;
  }

  get destroyed(): boolean {
    return this.#stream.destroyed || this.#stream.closed;
  }

  /**
   * Whether a part of the body waits, and the client has taken none of it for too long. Its other frames do not count: each
   * stream has its own flow-control window, which may stay closed.
   *
   * @param now milliseconds of `performance.now()`
   */
  isStalled(now: number, limit: number): boolean {
    const waiting = this.#stream.writableLength;
    const taken = this.#written - waiting;
    if (waiting === 0 || taken !== this.#taken) {
      this.#taken = taken;
      this.#takenAt = now;
    }
    return now - this.#takenAt >= limit;
  }

  /** @throws {MalformedMessage} for an invalid status; Node would throw only later, when no error can be sent any more */
  writeHead(status: number, headers: readonly string[]): void {
    if (status < 200 || status > 599) throw new MalformedMessage(`invalid HTTP/2 status ${status}`);
    const head = http2Headers(headers);
    head[':status'] = status;
    this.#head = head;
    this.#counters.responded(status);
    this.#bodyless ||= status === 204 || status === 304;
  }

  writeInterim(status: number, headers: readonly string[]): void {
    if (this.destroyed || this.#stream.headersSent) return;
    const head = http2Headers(headers);
    head[':status'] = status;
    this.#stream.additionalHeaders(head);
  }

  flushHeaders(): void {
    this.#respond({ waitForTrailers: true });
  }

  cork(): void {
    this.#stream.cork();
  }

  uncork(): void {
    this.#stream.uncork();
  }

  write(chunk: Buffer): boolean {
    this.#respond({ waitForTrailers: true });
    if (this.#bodyless || this.destroyed) return true;
    this.#written += chunk.length;
    return this.#stream.write(chunk);
  }

  addTrailers(trailers: readonly [name: string, value: string][]): void {
    this.#trailers = http2Headers(trailers.flat());
  }

  end(last?: Buffer): void {
    const empty = last === undefined || last.length === 0;
    // A trailers-only gRPC response has to arrive as one frame.
    if (this.#trailers === null) this.#respond({ endStream: empty });
    else this.#respond({ waitForTrailers: true });
    if (this.destroyed || this.#bodyless) return;
    if (empty) this.#stream.end();
    else {
      this.#written += last.length;
      this.#stream.end(last);
    }
  }

  destroy(code: number = Http2Code.internalError): void {
    if (!this.destroyed) this.#stream.close(code);
  }

  on(event: 'close', listener: () => void): this {
    this.#stream.on(event, listener);
    return this;
  }

  once(event: 'close' | 'drain', listener: () => void): this {
    this.#stream.once(event, listener);
    return this;
  }

  /** Without `waitForTrailers`, Node would end a stream in an orderly way before it resets it. */
  #respond(options: ServerStreamResponseOptions): void {
    const stream = this.#stream;
    if (this.destroyed || stream.headersSent) return;
    stream.respond(this.#head ?? {}, this.#bodyless ? { endStream: true } : options);
    if (!options.waitForTrailers) stream.once('finish', this.#finished);
    else {
      stream.once('wantTrailers', () => {
        stream.sendTrailers(this.#trailers ?? {});
        this.#finished();
      });
    }
  }

  /** Asks a client that is still sending to stop, once the response has left (RFC 9113, 8.1). */
  readonly #finished = (): void => {
    const stream = this.#stream;
    if (stream.endAfterHeaders) return;
    setImmediate(() => {
      if (!stream.readableEnded && !this.destroyed) stream.close(Http2Code.noError);
    });
  };
}
