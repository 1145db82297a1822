import { isUtf8 } from 'node:buffer';
import { once } from 'node:events';
import type { Transform } from 'node:stream';
import * as zlib from 'node:zlib';
import { trimSpace } from '../../lib/http/header-fields.ts';
import { MASK } from '../../lib/masking/secret-names.ts';
import { runInTurns } from '../../lib/stepwise.ts';
import type { CapturedMessage } from './captured-exchange.ts';
import { hasBinary, MIN_BINARY, maskTextStepwise } from './masking/mask-text.ts';
import { fieldValue, type HeaderField } from './parsing/message-head.ts';

/** Not in Node.js 20. */
const { createZstdDecompress } = zlib as { createZstdDecompress?: () => Transform };

/** More of a decoded body is not shown. */
const MAX_DECODED = 1024 * 1024;

export interface BodyContent {
  contentType: string | null;
  contentEncoding: string | null;
  /** Decoded and, unless secrets are shown, masked. */
  bytes: Buffer;
  /** The same as text; null when it is none. */
  text: string | null;
  /** Bytes after decoding, before masking. */
  decodedBytes: number;
  /** Whether more was sent than `bytes`. */
  truncated: boolean;
  masked: boolean;
  /** Why it could not be decoded; then `bytes` are those that were sent. */
  error: string | null;
}

/**
 * Decodes a captured body.
 *
 * @returns null when there is none
 */
export async function bodyContent(
  message: CapturedMessage<unknown>,
  fields: readonly HeaderField[],
  reveal: boolean,
): Promise<BodyContent | null> {
  const { body } = message;
  if (body === null || body.length === 0) return null;
  const contentType = fieldValue(fields, 'content-type');
  const contentEncoding = fieldValue(fields, 'content-encoding');
  // What is captured of an unfinished body may grow meanwhile.
  const sent = Buffer.from(body.bytes);
  const decoded = await decode(sent, contentEncoding);
  const truncated = message.isTruncated || decoded.truncated;
  const text = textOf(decoded.bytes, truncated, contentType);
  const shown = reveal ? text : await maskedText(text, decoded.bytes.length, contentType);
  const masked = shown !== text;
  const bytes = masked && shown !== null ? Buffer.from(shown) : decoded.bytes;
  const decodedBytes = decoded.bytes.length;
  return { contentType, contentEncoding, bytes, text: shown, decodedBytes, truncated, masked, error: decoded.error };
}

/** Pictures and the like, in which nobody sends names and values. */
const MEDIA = /^(?:image\/(?!svg)|audio\/|video\/|font\/|application\/(?:font|pdf|wasm))/i;
/** Fields of these have numbers for names, or lengths before them. */
const BINARY_TYPE = /^application\/(?:[\w.-]*\b)?(?:protobuf|grpc|msgpack|cbor|avro|thrift|bson|amf)\b/i;

/** @returns null for a binary body that may be shown */
async function maskedText(text: string | null, size: number, contentType: string | null): Promise<string | null> {
  const type = contentType ?? '';
  if (MEDIA.test(type) || size < MIN_BINARY) return text;
  // What has no names that can be read may have secrets anywhere.
  if (text === null || BINARY_TYPE.test(type) || hasBinary(text)) return MASK;
  return await runInTurns(maskTextStepwise(text, contentType));
}

interface Decoded {
  bytes: Buffer;
  truncated: boolean;
  error: string | null;
}

async function decode(sent: Buffer, encoding: string | null): Promise<Decoded> {
  const codings = (encoding ?? '')
    .toLowerCase()
    .split(',')
    .map((each) => trimSpace(each))
    .filter((each) => each !== '' && each !== 'identity');
  // A bomb rather than a body.
  if (codings.length > 2) return { bytes: sent, truncated: false, error: 'more than two content encodings' };
  let bytes = sent;
  let truncated = false;
  // The last one was applied last.
  for (const coding of codings.reverse()) {
    const decoder = decoderFor(coding, bytes);
    if (decoder === null) return { bytes: sent, truncated: false, error: `unknown content encoding ${coding}` };
    const result = await inflate(decoder, bytes);
    if (result.error !== null && result.bytes.length === 0) return { ...result, bytes: sent, truncated: false };
    bytes = result.bytes;
    truncated ||= result.truncated;
  }
  return { bytes, truncated, error: null };
}

function decoderFor(coding: string, bytes: Buffer): Transform | null {
  switch (coding) {
    case 'gzip':
    case 'x-gzip':
      return zlib.createGunzip();
    case 'br':
      return zlib.createBrotliDecompress();
    case 'deflate':
      // Some servers send it without the header of zlib.
      return ((bytes[0] ?? 0) & 0x0f) === 8 ? zlib.createInflate() : zlib.createInflateRaw();
    case 'zstd':
      return createZstdDecompress?.() ?? null;
    default:
      return null;
  }
}

/** Decompresses until the end, an error or the limit. What a cut body yields counts. */
async function inflate(decoder: Transform, bytes: Buffer): Promise<Decoded> {
  const chunks: Buffer[] = [];
  let length = 0;
  let error: string | null = null;
  let truncated = false;
  decoder.on('data', (chunk: Buffer) => {
    chunks.push(chunk);
    length += chunk.length;
    if (length <= MAX_DECODED) return;
    truncated = true;
    decoder.destroy();
  });
  decoder.on('error', (problem) => {
    error = problem.message;
    truncated = true;
  });
  decoder.end(bytes);
  await once(decoder, 'close').catch(() => {});
  return { bytes: Buffer.concat(chunks).subarray(0, MAX_DECODED), truncated, error };
}

const TEXT_TYPE = /^text\/|[/+](?:json|xml|javascript|yaml|x-www-form-urlencoded|graphql|x-ndjson)\b/i;

function textOf(bytes: Buffer, truncated: boolean, contentType: string | null): string | null {
  // The cut may be inside a character.
  const whole = truncated ? withoutCutCharacter(bytes) : bytes;
  if (isUtf8(whole) && !whole.subarray(0, 4_096).includes(0)) return whole.toString('utf8');
  const isText = TEXT_TYPE.test(contentType ?? '');
  const named = /;\s*charset="?([^";\s]+)/i.exec(contentType ?? '')?.[1];
  const charset = named ?? (isText ? wideCharset(whole) : undefined);
  if (!isText && charset === undefined) return null;
  try {
    return new TextDecoder(charset ?? 'windows-1252').decode(whole);
  } catch {
    return null;
  }
}

/** The charset of a text that begins with a byte order mark or an ASCII character of two bytes. */
function wideCharset(bytes: Buffer): string | undefined {
  const [first = 0, second = 0] = bytes;
  if ((first === 0xff && second === 0xfe) || (first >= 0x20 && first < 0x7f && second === 0)) return 'utf-16le';
  return (first === 0xfe && second === 0xff) || (first === 0 && second >= 0x20 && second < 0x7f)
    ? 'utf-16be'
    : undefined;
}

function withoutCutCharacter(bytes: Buffer): Buffer {
  let end = bytes.length;
  for (let back = 0; back < 3 && end > 0 && (bytes.readUInt8(end - 1) & 0xc0) === 0x80; back++) end--;
  return end > 0 && bytes.readUInt8(end - 1) >= 0xc0 ? bytes.subarray(0, end - 1) : bytes;
}
