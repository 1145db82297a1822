import { promisify } from 'node:util';
import { brotliDecompress, gunzip, inflate } from 'node:zlib';
import { trimSpace } from '../../lib/http/header-fields.ts';
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
