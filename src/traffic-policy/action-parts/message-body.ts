import { promisify } from 'node:util';
import { brotliDecompress, gunzip, inflate } from 'node:zlib';
import { nameAt, trimSpace, valueAt } from '../../lib/http/header-fields.ts';
import { allValues } from '../scope/header-map.ts';

type Decode = (body: Buffer, limit: { maxOutputLength: number }) => Promise<Buffer>;

const [unzip, inflated, unbrotli] = [promisify(gunzip), promisify(inflate), promisify(brotliDecompress)];
const DECODERS = new Map<string, Decode>([
  ['', async (body) => body],
  ['identity', async (body) => body],
  ['gzip', (body, limit) => unzip(body, limit)],
  ['x-gzip', (body, limit) => unzip(body, limit)],
  ['deflate', (body, limit) => inflated(body, limit)],
  ['br', (body, limit) => unbrotli(body, limit)],
]);

/**
 * The content of a body without the encoding that its headers name.
 *
 * @throws Error for other encodings than gzip, deflate and br, and when the content is longer than `maxBytes`
 */
export async function decodedBody(body: Buffer, headers: readonly string[], maxBytes: number): Promise<Buffer> {
  const coding = trimSpace(allValues(headers, 'content-encoding').join(',')).toLowerCase();
  const decode = DECODERS.get(coding);
  if (!decode) throw new Error('the body has an encoding that the gateway cannot decode');
  try {
    return await decode(body, { maxOutputLength: maxBytes });
  } catch (error) {
    throw new Error(`the body cannot be decoded, or is longer than ${maxBytes} bytes`, { cause: error });
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
