import type { Transform } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { messageOf } from '../../lib/errors.ts';
import { nameAt, trimSpace, valueAt } from '../../lib/http/header-fields.ts';
import { NoRoom, type Reservation } from '../../lib/memory-budget.ts';
import { allValues } from '../scope/header-map.ts';
import { poolShareOf } from '../state/pool-share.ts';
import type { ProcessorTime } from '../state/processor-time.ts';

/** Encodings of bodies that the gateway can undo (RFC 9110, section 8.4.1, and RFC 7932). */
export type Coding = 'gzip' | 'deflate' | 'br';

interface Decoder {
  readonly start: () => Transform;
  /** Bytes that it takes with its buffers. Measured with Node.js 20. */
  readonly bytes: number;
  /** Times that it holds what it has decoded. */
  readonly copies: number;
}

const KIB = 1024;
const GZIP: Decoder = { start: createGunzip, bytes: 96 * KIB, copies: 1 };
const DECODERS: Readonly<Record<Coding, Decoder>> = {
  gzip: GZIP,
  deflate: { ...GZIP, start: createInflate },
  // It looks back at most as far as it has decoded.
  br: { start: createBrotliDecompress, bytes: 160 * KIB, copies: 2 },
};
const CODINGS: ReadonlyMap<string, Coding | null> = new Map([
  ['', null],
  ['identity', null],
  ['gzip', 'gzip'],
  ['x-gzip', 'gzip'],
  ['deflate', 'deflate'],
  ['br', 'br'],
]);

/**
 * The encoding that a body's headers name; null without one.
 *
 * @throws Error for others than gzip, deflate and br
 */
export function codingOf(headers: readonly string[]): Coding | null {
  const coding = CODINGS.get(trimSpace(allValues(headers, 'content-encoding').join(',')).toLowerCase());
  if (coding !== undefined) return coding;
  throw new Error('the body has an encoding that the gateway cannot decode');
}

/** Measured milliseconds of a thread: for each body, and its bytes before and after in a millisecond. */
const DECODE_MS = 0.3;
const BYTES_PER_MS = 131_072;
/** How many bytes of content a byte stands for, mostly; what exceeds this is charged afterwards. */
const USUAL_RATIO = 8;

/**
 * The content of a body without the encoding that its headers name. What it takes is reserved piece by piece, before a decoder
 * makes the next: a body can have a thousandth of its content's length.
 *
 * @param held counts the content until it is released; it may have been told of the body itself
 * @throws {NoRoom}
 * @param time pays for it
 * @throws Error for other encodings than gzip, deflate and br, and when the content is longer than `maxBytes`
 */
export async function decodedBody(
  body: Buffer,
  headers: readonly string[],
  maxBytes: number,
  held: Reservation,
  time: ProcessorTime,
): Promise<Buffer> {
  const coding = codingOf(headers);
  if (coding === null) return body;
  const decoder = DECODERS[coding];
  const share = poolShareOf(time);
  const expected = Math.min(maxBytes, USUAL_RATIO * body.length);
  const ms = DECODE_MS + (body.length + expected) / BYTES_PER_MS;
  await share.enter(ms, time);
  let length = maxBytes;
  try {
    const content = await decoded(body, decoder, maxBytes, held);
    length = content.length;
    return content;
  } finally {
    share.leave(ms);
    time.spend(Math.max(0, length - expected) / BYTES_PER_MS);
  }
}

async function decoded(body: Buffer, decoder: Decoder, maxBytes: number, held: Reservation): Promise<Buffer> {
  const { start, bytes, copies } = decoder;
  const before = held.bytes;
  held.require(bytes);
  const stream = start();
  const pieces: Buffer[] = [];
  let length = 0;
  try {
    stream.end(body);
    for await (const piece of stream as AsyncIterable<Buffer>) {
      length += piece.length;
      if (length > maxBytes) throw new Error(`its content is longer than ${maxBytes} bytes`);
      held.require(piece.length * copies);
      pieces.push(piece);
    }
    held.release(before + length);
    return Buffer.concat(pieces, length);
  } catch (error) {
    if (error instanceof NoRoom) throw error;
    throw new Error(`the body cannot be decoded: ${messageOf(error)}`, { cause: error });
  } finally {
    stream.destroy();
  }
}

/** Headers that say something of a body that only holds for its bytes as they were. */
const OF_BYTES: ReadonlySet<string> = new Set([
  ...['accept-ranges', 'content-digest', 'content-encoding', 'content-length', 'content-md5', 'digest', 'repr-digest'],
]);

/** Removes from headers what no longer holds once a body has other bytes. */
export function forgetBytes(headers: string[]): void {
  const kept: string[] = [];
  for (let at = 0; at < headers.length; at += 2) {
    const lower = nameAt(headers, at).toLowerCase();
    const value = valueAt(headers, at);
    if (OF_BYTES.has(lower)) continue;
    // A weak validator claims the same meaning only (RFC 9110, section 8.8.1).
    kept.push(nameAt(headers, at), lower === 'etag' && !value.startsWith('W/') ? `W/${value}` : value);
  }
  headers.splice(0, headers.length, ...kept);
}
