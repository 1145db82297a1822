import type { Transform } from 'node:stream';
import { constants, createBrotliCompress, createDeflate, createGzip } from 'node:zlib';
import type { ContentEncoding } from '../../../traffic-policy/policy-subjects.ts';
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

/** A stream that compresses what is written to it and sends it as the body of a response. */
export function encoderFor(res: ClientResponse, encoding: ContentEncoding): Transform {
  const encoder = ENCODERS[encoding]();
  encoder.on('error', () => res.destroy());
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
