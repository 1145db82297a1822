import type { Transform, TransformCallback } from 'node:stream';
import { constants, createBrotliCompress, createDeflate, createGzip } from 'node:zlib';
import type { Compression, ContentEncoding, PolicyResponse } from '../../../traffic-policy/policy-subjects.ts';
import { LimitedStream } from '../connections/limited-stream.ts';
import type { ClientResponse } from '../http/client-message.ts';
import { passableTrailers } from '../http/headers.ts';
import type { UpstreamLink } from '../upstreams/upstream-link.ts';
import type { EdgeRequest } from './edge-request.ts';
import { eventStream } from './event-stream.ts';

interface BodySink extends Pick<ClientResponse, 'write'> {
  end(last?: Buffer): unknown;
  once(event: 'drain', listener: () => void): unknown;
}

const NO_TRAILERS: readonly string[] = [];

/**
 * Writes a response to the client at the end of each turn of the event loop. A response that arrives whole leaves in one
 * write, a large one in few. Writing all responses of a turn together costs a sixth less than interleaving them with
 * other work.
 */
export class ResponseWriter {
  #pieces: Buffer[] = [];
  #trailers = NO_TRAILERS;
  #complete = false;
  #due = false;
  #paused = false;

  /** @param sink the response itself, or an encoder in front of it */
  constructor(
    private readonly res: ClientResponse,
    private connection: UpstreamLink | null,
    private readonly sink: BodySink,
  ) {}

  /** Schedules the head, with the part of the body that arrives in this turn. */
  begin(): void {
    if (this.#due) return;
    this.#due = true;
    setImmediate(flush, this);
  }

  write(piece: Buffer): void {
    this.#pieces.push(piece);
    this.begin();
  }

  /** Completes the response; the connection may serve another one from now on. */
  end(trailers: readonly string[]): void {
    this.connection = null;
    this.#trailers = trailers;
    this.#complete = true;
    this.begin();
  }

  /** Aborts the response, which the client sees as incomplete; `code` is the reset code for HTTP/2. */
  abort(code?: number): void {
    this.connection = null;
    this.flush();
    // Wait until the writes have reached the system.
    setImmediate(() => this.res.destroy(code));
  }

  flush(): void {
    const { res, sink } = this;
    this.#due = false;
    // The 'close' event, which ends the exchange, may not have fired yet.
    if (res.destroyed) return;
    const pieces = this.#pieces;
    this.#pieces = [];
    const last = this.#complete ? pieces.pop() : undefined;
    let room = true;
    if (pieces.length > 0) res.cork();
    for (const piece of pieces) room = sink.write(piece);
    if (this.#complete) this.#end(last);
    else if (pieces.length === 0) res.flushHeaders();
    if (pieces.length > 0) res.uncork();
    if (!room && !this.#paused && this.connection) this.#pause(this.connection);
  }

  #end(last: Buffer | undefined): void {
    const hasTrailers = this.#trailers.length > 0 && this.res.chunkedEncoding;
    if (hasTrailers) this.res.addTrailers(passableTrailers(this.#trailers));
    this.sink.end(last);
  }

  #pause(connection: UpstreamLink): void {
    this.#paused = true;
    connection.pause();
    this.sink.once('drain', () => {
      this.#paused = false;
      // By now the connection may carry another response.
      this.connection?.resume();
    });
  }
}

/** setImmediate takes arguments, which is cheaper than a closure each time. */
function flush(writer: ResponseWriter): void {
  writer.flush();
}

/** Flushes every write: server-sent events must not wait in the encoder. */
const ZLIB = { flush: constants.Z_SYNC_FLUSH };

/** Brotli's default quality suits static files and takes many times as long. */
const BROTLI = {
  flush: constants.BROTLI_OPERATION_FLUSH,
  params: { [constants.BROTLI_PARAM_QUALITY]: 4, [constants.BROTLI_PARAM_LGWIN]: 18 },
};

const ENCODERS: Readonly<Record<ContentEncoding, () => Transform>> = {
  gzip: () => createGzip(ZLIB),
  deflate: () => createDeflate(ZLIB),
  br: () => createBrotliCompress(BROTLI),
};

/** Measured: processor time of one write, and bytes that are compressed in a millisecond. */
const WRITE_MS = 0.05;
const BYTES_PER_MS = 32_768;

/** Where the body of a response goes, so that its policy has its way. */
export function sinkFor(request: EdgeRequest, response: PolicyResponse): BodySink {
  const { res } = request;
  const rate = request.bandwidth?.up ?? null;
  const out = rate === null ? res : passingOn(new LimitedStream(rate), res, res);
  const sink = response.compression === undefined ? out : encoderFor(res, response.compression, out);
  if (!response.hasMessages) return sink;
  // The first message may take long to arrive.
  res.flushHeaders();
  return passingOn(eventStream(request, response), sink, res);
}

/** A stream that compresses a response's body. It takes no more while the processor time for compression is used up. */
export function encoderFor(
  res: ClientResponse,
  { encoding, time, memory, bytes }: Compression,
  out: BodySink = res,
): Transform {
  const encoder = ENCODERS[encoding]();
  const compress = encoder._transform;
  encoder._transform = (piece: Buffer, name: BufferEncoding, done: TransformCallback) => {
    time.whenLeft(WRITE_MS + piece.length / BYTES_PER_MS, () => {
      // Node fails an assertion for encoders that are closed.
      if (!encoder.destroyed) compress.call(encoder, piece, name, done);
    });
  };
  memory.reserve(bytes);
  encoder.once('close', () => memory.release(bytes));
  return passingOn(encoder, out, res);
}

/** Sends what comes out of a stream to a sink in front of a response, or to the response itself. */
function passingOn(stream: Transform, sink: BodySink, res: ClientResponse): Transform {
  res.once('close', () => stream.destroy());
  return stream
    .on('error', () => res.destroy())
    .on('data', (piece: Buffer) => {
      if (sink.write(piece)) return;
      stream.pause();
      sink.once('drain', () => stream.resume());
    })
    .on('end', () => sink.end());
}
