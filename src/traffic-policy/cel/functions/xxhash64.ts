const PRIME_1 = 0x9e3779b185ebca87n;
const PRIME_2 = 0xc2b2ae3d27d4eb4fn;
const PRIME_3 = 0x165667b19e3779f9n;
const PRIME_4 = 0x85ebca77c2b2ae63n;
const PRIME_5 = 0x27d4eb2f165667c5n;

const u64 = (value: bigint): bigint => BigInt.asUintN(64, value);
const rotate = (value: bigint, bits: bigint): bigint => u64((value << bits) | (value >> (64n - bits)));
const round = (lane: bigint, input: bigint): bigint => u64(rotate(u64(lane + input * PRIME_2), 31n) * PRIME_1);

/** XXH64 with seed 0, by the specification of xxHash. */
export function xxhash64(data: Buffer): bigint {
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
