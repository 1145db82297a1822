import { BoundedMap } from '../lib/bounded-map.ts';
import { type Cidr, parseCidr } from '../lib/network/cidr.ts';

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
