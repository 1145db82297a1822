import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { type CelFunc, CelScalar, celFunc, celMethod } from '@bufbuild/cel';

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

const PRIME_1 = 0x9e3779b185ebca87n;
const PRIME_2 = 0xc2b2ae3d27d4eb4fn;
const PRIME_3 = 0x165667b19e3779f9n;
const PRIME_4 = 0x85ebca77c2b2ae63n;
const PRIME_5 = 0x27d4eb2f165667c5n;

const u64 = (value: bigint): bigint => BigInt.asUintN(64, value);
const rotate = (value: bigint, bits: bigint): bigint => u64((value << bits) | (value >> (64n - bits)));
const round = (lane: bigint, input: bigint): bigint => u64(rotate(u64(lane + input * PRIME_2), 31n) * PRIME_1);

/** XXH64 with seed 0, by the specification of xxHash. */
function xxhash64(data: Buffer): bigint {
  let at = 0;
  let hash = PRIME_5;
  if (data.length >= 32) {
    const lanes = [u64(PRIME_1 + PRIME_2), PRIME_2, 0n, u64(-PRIME_1)];
    for (; at + 32 <= data.length; at += 32) {
      for (const [lane, value] of lanes.entries()) lanes[lane] = round(value, data.readBigUInt64LE(at + lane * 8));
    }
    hash = converged(lanes);
  }
  hash = u64(hash + BigInt(data.length));
  for (; at + 8 <= data.length; at += 8) {
    hash = u64(rotate(hash ^ round(0n, data.readBigUInt64LE(at)), 27n) * PRIME_1 + PRIME_4);
  }
  if (at + 4 <= data.length) {
    hash = u64(rotate(hash ^ u64(BigInt(data.readUInt32LE(at)) * PRIME_1), 23n) * PRIME_2 + PRIME_3);
    at += 4;
  }
  for (; at < data.length; at++) {
    hash = u64(rotate(hash ^ u64(BigInt(data.readUInt8(at)) * PRIME_5), 11n) * PRIME_1);
  }
  return avalanche(hash);
}

function converged(lanes: readonly bigint[]): bigint {
  const [a = 0n, b = 0n, c = 0n, d = 0n] = lanes;
  let hash = u64(rotate(a, 1n) + rotate(b, 7n) + rotate(c, 12n) + rotate(d, 18n));
  for (const lane of lanes) hash = u64((hash ^ round(0n, lane)) * PRIME_1 + PRIME_4);
  return hash;
}

function avalanche(value: bigint): bigint {
  let hash = value ^ (value >> 33n);
  hash = u64(hash * PRIME_2);
  hash ^= hash >> 29n;
  hash = u64(hash * PRIME_3);
  return hash ^ (hash >> 32n);
}
