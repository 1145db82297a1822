import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { type CelFunc, CelScalar, celFunc, celMethod } from '@bufbuild/cel';
import { xxhash64 } from './xxhash64.ts';

const { BYTES, STRING } = CelScalar;

type Hash = (data: Buffer) => Buffer;

const HASHES: Readonly<Record<string, Hash>> = {
  crc32: (data) => bigEndian(BigInt(crc32(data)), 4),
  crc64: (data) => bigEndian(crc64(data), 8),
  md5: digest('md5'),
  sha1: digest('sha1'),
  sha256: digest('sha256'),
  sha512: digest('sha512'),
  xxhash64: (data) => bigEndian(xxhash64(data), 8),
};

/** `hash.sha256(s)` and `s.sha256()`, for strings and bytes, in hex or base64. */
export const HASH_FUNCTIONS: readonly CelFunc[] = Object.entries(HASHES).flatMap(([name, hash]) =>
  [STRING, BYTES].flatMap((type) => [
    celFunc(`hash.${name}`, [type], STRING, (data) => encoded(hash, data, 'hex')),
    celFunc(`hash.${name}`, [type, STRING], STRING, (data, encoding) => encoded(hash, data, encoding)),
    celMethod(name, type, [], STRING, function () {
      return encoded(hash, this, 'hex');
    }),
    celMethod(name, type, [STRING], STRING, function (encoding) {
      return encoded(hash, this, encoding);
    }),
  ]),
);

function encoded(hash: Hash, data: string | Uint8Array, encoding: string): string {
  const result = hash(typeof data === 'string' ? Buffer.from(data) : Buffer.from(data));
  if (encoding === 'hex' || encoding === 'base64') return result.toString(encoding);
  throw new Error("the encoding must be 'hex' or 'base64'");
}

function digest(algorithm: string): Hash {
  return (data) => createHash(algorithm).update(data).digest();
}

function bigEndian(value: bigint, bytes: number): Buffer {
  return Buffer.from(value.toString(16).padStart(bytes * 2, '0'), 'hex');
}

/** The polynomial of ISO 3309, with reversed bits. */
const POLYNOMIAL = 0xd800000000000000n;
const ALL_ONES = 0xffffffffffffffffn;

const CRC64_TABLE = Array.from({ length: 256 }, (_, byte) => {
  let value = BigInt(byte);
  for (let bit = 0; bit < 8; bit++) value = value & 1n ? (value >> 1n) ^ POLYNOMIAL : value >> 1n;
  return value;
});

function crc64(data: Buffer): bigint {
  let value = ALL_ONES;
  for (const byte of data) value = (CRC64_TABLE[Number((value ^ BigInt(byte)) & 0xffn)] ?? 0n) ^ (value >> 8n);
  return value ^ ALL_ONES;
}
