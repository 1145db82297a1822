import type { OutgoingHttpHeaders, ServerHttp2Stream, ServerStreamResponseOptions } from 'node:http2';
import { Progress } from '../../../../lib/time/deadline.ts';
import type { EdgeCounters } from '../../../metrics/edge-counters.ts';
import type { ClientResponse } from '../../http/client-message.ts';
import { Http2Code, http2Headers } from '../../http/http2-headers.ts';
import { unsentBytes } from '../client-memory.ts';

/** Bytes that a client takes between two checks when it is not slow. */
const FAST = 262_144;

/** Statuses that Node sends without a body. */
const WITHOUT_BODY: ReadonlySet<number> = new Set([204, 205, 304]);

export class Http2Response implements ClientResponse {
  /** Ignored: the end of a stream does not close the connection. */
  shouldKeepAlive = true;
  onStatus: ClientResponse['onStatus'] = null;
  readonly chunkedEncoding = true;
  readonly #stream: ServerHttp2Stream;
  readonly #counters: EdgeCounters;
  #head: OutgoingHttpHeaders | null = null;
  #bodyless: boolean;
  #trailers: OutgoingHttpHeaders | null = null;
  readonly #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #given = 0;
  #ended = false;
  /**
   * Bytes of the body that Node gets at a time until the client has proved fast. Node reports only when all that it got has
   * left, so that more would hide a slow client's progress. For others, it would cost a tenth of the throughput. With less
   * than Node's high-water mark (16 KiB; 64 KiB since Node.js 22), it would report nothing.
   */
  readonly #firstPortion: number;
  #portion: number;
  #takenBefore = 0;
  #awaitsDrain = false;
  #whenDrained: (() => void) | null = null;
  /** Null until a part of the body had to wait. */
  #progress: Progress | null = null;
  continued = false;
  readonly #onDrain = (): void => {
    this.#awaitsDrain = false;
    // All that Node got has left.
    if (this.#given - this.#takenBefore >= FAST) this.#portion = Number.POSITIVE_INFINITY;
    this.#feed();
    if (this.#awaitsDrain) return;
    const drained = this.#whenDrained;
    this.#whenDrained = null;
    drained?.();
  };
  /** Asks a client that is still sending to stop, once the response has left (RFC 9113, 8.1). */
  readonly #finished = (): void => {
    const stream = this.#stream;
    if (stream.endAfterHeaders) return;
    setImmediate(() => {
      if (!stream.readableEnded && !this.destroyed) stream.close(Http2Code.noError);
    });
  };

  constructor(stream: ServerHttp2Stream, bodyless: boolean, counters: EdgeCounters) {
    this.#stream = stream;
    this.#firstPortion = stream.writableHighWaterMark;
    this.#portion = this.#firstPortion;
    this.#counters = counters;
    this.#bodyless = bodyless;
  }

  get headersSent(): boolean {
    return this.#head !== null;
  }

  get destroyed(): boolean {
    return this.#stream.destroyed || this.#stream.closed;
  }

  /** Whether the client takes too little of a waiting body: the window of each stream may stay closed. */
  isStalled(period: number, now: number): boolean {
    const waiting = this.#stream.writableLength;
    const taken = this.#given - waiting;
    this.#progress ??= new Progress(period, now, taken);
    this.#portion = taken - this.#takenBefore < FAST ? this.#firstPortion : Number.POSITIVE_INFINITY;
    this.#takenBefore = taken;
    if (waiting > 0) return this.#progress.isStalled(now, taken);
    this.#progress.restart(now, taken);
    return false;
  }

  get unread(): number {
    return this.#waitingBytes + unsentBytes(this.#stream);
  }

  writeHead(status: number, headers: readonly string[]): void {
    const head = http2Headers(headers);
    // Node sends no others. Recipients treat invalid ones as errors of the server (RFC 9110, 15).
    head[':status'] = status > 599 ? 500 : status;
    this.#head = head;
    this.#counters.responded(status);
    this.onStatus?.responded(status);
    if (WITHOUT_BODY.has(status)) {
      this.#bodyless = true;
      // Go's client would wait for a body of that length, although a 304 may state one (RFC 9110, 8.6).
      delete head['content-length'];
    }
    this.#stream.emit('head', status, headers);
  }

  writeInterim(status: number, headers: readonly string[]): void {
    if (this.destroyed || this.#stream.headersSent) return;
    const head = http2Headers(headers);
    head[':status'] = status;
    this.continued ||= status === 100;
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
    return this.#bodyless || this.destroyed || this.#send(chunk);
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
    this.#ended = true;
    if (!empty) this.#send(last);
    else if (this.#waiting.length === 0) this.#stream.end();
  }

  destroy(code: number = Http2Code.internalError): void {
    if (!this.destroyed) this.#stream.close(code);
  }

  on(event: 'close' | 'head', listener: (status: number, headers: readonly string[]) => void): this {
    this.#stream.on(event, listener);
    return this;
  }

  once(event: 'close' | 'drain', listener: () => void): this {
    if (event === 'drain') this.#whenDrained = listener;
    else this.#stream.once(event, listener);
    return this;
  }

  #send(chunk: Buffer): boolean {
    this.#waiting.push(chunk);
    this.#waitingBytes += chunk.length;
    this.#feed();
    return !this.#awaitsDrain;
  }

  #feed(): void {
    const stream = this.#stream;
    while (this.#waiting.length > 0 && stream.writableLength < this.#portion) {
      const next = this.#nextPortion();
      this.#given += next.length;
      this.#waitingBytes -= next.length;
      if (this.#ended && this.#waiting.length === 0) stream.end(next);
      else stream.write(next);
    }
    if (this.#awaitsDrain || !stream.writableNeedDrain) return;
    this.#awaitsDrain = true;
    stream.once('drain', this.#onDrain);
  }

  #nextPortion(): Buffer {
    const first = this.#waiting[0] as Buffer;
    if (first.length <= this.#portion) this.#waiting.shift();
    else this.#waiting[0] = first.subarray(this.#portion);
    return first.subarray(0, this.#portion);
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
}
