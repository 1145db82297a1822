import { type CelFunc, type CelList, CelScalar, celFunc, celMethod, listType } from '@bufbuild/cel';
import { BoundedMap } from '../../../lib/bounded-map.ts';
import { type Cidr, parseAddress, parseCidr } from '../../../lib/network/ip-address.ts';
import { currentContext, UNKNOWN_SECRET } from '../evaluation.ts';

const MAX_RANGES = 1000;
/** No range is longer: a full IPv6 address has 39 characters. */
const MAX_LENGTH = 64;
const cache = new BoundedMap<string, Cidr | null>(MAX_RANGES);

/** Parses a range as {@link parseCidr} does, once for all evaluations of an expression that names it. */
export function cachedCidr(text: string): Cidr | null {
  let cidr = cache.get(text);
  if (cidr === undefined) {
    cidr = text.length <= MAX_LENGTH ? parseCidr(text) : null;
    cache.set(text, cidr);
  }
  return cidr;
}

const { BOOL, DOUBLE, INT, STRING } = CelScalar;

const PRIVATE = ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16'];

export const NETWORK_FUNCTIONS: readonly CelFunc[] = [
  celFunc('inCidrRange', [STRING, STRING], BOOL, (address, range) => isInAny(address, [range])),
  celFunc('inCidrRanges', [STRING, listType(STRING)], BOOL, (address, ranges) => isInAny(address, ranges)),
  celMethod('isPrivateIp', STRING, [], BOOL, function () {
    return isInAny(this, PRIVATE);
  }),
  celFunc('rand.double', [], DOUBLE, () => currentContext().random()),
  celFunc('rand.int', [], INT, () => randomInt(0n, 1n)),
  celFunc('rand.int', [INT, INT], INT, randomInt),
  celFunc('secrets.get', [STRING, STRING], STRING, (vault, name) => {
    const secret = currentContext().secret(vault, name);
    if (secret === null) throw new Error(`${UNKNOWN_SECRET}: ${name}`);
    return secret;
  }),
];

/** Both ends included. */
function randomInt(min: bigint, max: bigint): bigint {
  if (min > max) throw new Error('rand.int: min is larger than max');
  return min + BigInt(Math.floor(currentContext().random() * Number(max - min + 1n)));
}

function isInAny(text: string, ranges: CelList | readonly string[]): boolean {
  const address = parseAddress(text);
  if (address === null) return false;
  for (const range of ranges) {
    if (typeof range === 'string' && cachedCidr(range)?.contains(address)) return true;
  }
  return false;
}
