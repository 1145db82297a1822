import type { Transform, TransformCallback } from 'node:stream';
import { constants, createBrotliCompress, createDeflate, createGzip } from 'node:zlib';
import type { Compression, ContentEncoding } from '../../../traffic-policy/policy-subjects.ts';
import type { ClientResponse } from '../http/client-message.ts';

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

/**
 * A stream that compresses what is written to it and sends it as the body of a response. It takes no more when the
 * processor time for compression is used up, until some is left again.
 */
export function encoderFor(res: ClientResponse, { encoding, time, memory, bytes }: Compression): Transform {
  const encoder = ENCODERS[encoding]();
  const compress = encoder._transform;
  encoder._transform = (piece: Buffer, name: BufferEncoding, done: TransformCallback) => {
    time.whenLeft(WRITE_MS + piece.length / BYTES_PER_MS, () => {
      // Node fails an assertion for encoders that are closed.
      if (!encoder.destroyed) compress.call(encoder, piece, name, done);
    });
  };
  memory.reserve(bytes);
  encoder.on('error', () => res.destroy()).once('close', () => memory.release(bytes));
  res.once('close', () => encoder.destroy());
  encoder
    .on('data', (piece: Buffer) => {
      if (res.write(piece)) return;
      encoder.pause();
      res.once('drain', () => encoder.resume());
    })
    .on('end', () => res.end());
  return encoder;
}
