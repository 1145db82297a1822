import type { Transform } from 'node:stream';
import { constants, createBrotliCompress, createDeflate, createGzip } from 'node:zlib';
import type { ContentEncoding } from '../../../traffic-policy/policy-subjects.ts';
import type { ClientResponse } from '../http/client-message.ts';

/** Everything that was written comes out at once: events must not wait until enough of them are together. */
const ZLIB = { flush: constants.Z_SYNC_FLUSH };

/** Brotli's default level is meant for files that are compressed once, and takes many times as long. */
const BROTLI = {
  flush: constants.BROTLI_OPERATION_FLUSH,
  params: { [constants.BROTLI_PARAM_QUALITY]: 4, [constants.BROTLI_PARAM_LGWIN]: 18 },
};

const ENCODERS: Readonly<Record<ContentEncoding, () => Transform>> = {
  gzip: () => createGzip(ZLIB),
  deflate: () => createDeflate(ZLIB),
  br: () => createBrotliCompress(BROTLI),
};

/** Encodes what is written to it and sends it as the body of the response, with which it ends. */
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
