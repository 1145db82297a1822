import { isIPv4 } from 'node:net';
import { type Groups, parseAddress } from '../lib/ip-address.ts';
import { RecentMap } from '../lib/recent-map.ts';

const MAPPED_BITS = 96;
const ADDRESS_BITS = 128;

/** A range of addresses, of either IP version. */
export class Cidr {
  readonly text: string;
  readonly #groups: Groups;
  readonly #bits: number;

  constructor(text: string, groups: Groups, bits: number) {
    this.text = text;
    this.#groups = groups;
    this.#bits = bits;
  }

  /** @param address as {@link parseAddress} returns it */
  contains(address: Groups): boolean {
    // Who writes ::/0 means the whole of IPv6, and no IPv4 address.
    if (this.#bits < MAPPED_BITS && isIpv4(address)) return false;
    const whole = this.#bits >> 4;
    for (let at = 0; at < whole; at++) if (this.#groups[at] !== address[at]) return false;
    const rest = this.#bits & 15;
    if (rest === 0) return true;
    const shift = 16 - rest;
    return (this.#groups[whole] ?? 0) >> shift === (address[whole] ?? 0) >> shift;
  }
}

function isIpv4(address: Groups): boolean {
  return address[5] === 0xffff && address.every((group, at) => at > 4 || group === 0);
}

/**
 * @param text `10.0.0.0/8`, `2001:db8::/32`, or a single address; bits beyond the mask are ignored
 * @returns null when it is no such thing
 */
export function parseCidr(text: string): Cidr | null {
  const slash = text.indexOf('/');
  const address = slash === -1 ? text : text.slice(0, slash);
  const groups = parseAddress(address);
  if (groups === null) return null;
  const offset = isIPv4(address) ? MAPPED_BITS : 0;
  const mask = slash === -1 ? String(ADDRESS_BITS - offset) : text.slice(slash + 1);
  if (!/^(?:0|[1-9]\d{0,2})$/.test(mask)) return null;
  const bits = Number(mask) + offset;
  return bits <= ADDRESS_BITS ? new Cidr(text, groups, bits) : null;
}

const CACHED = 1000;
const cache = new RecentMap<string, Cidr | null>(CACHED);

/** As {@link parseCidr}, for ranges that an expression names again and again. */
export function cachedCidr(text: string): Cidr | null {
  let cidr = cache.get(text);
  if (cidr === undefined) {
    cidr = text.length <= 64 ? parseCidr(text) : null;
    cache.set(text, cidr);
  }
  return cidr;
}
