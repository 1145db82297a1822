import { isIPv4, isIPv6 } from 'node:net';

/** The eight 16-bit groups of an address; an IPv4 address is in the last two, after ::ffff:. */
type Groups = readonly number[];

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
    const whole = this.#bits >> 4;
    for (let at = 0; at < whole; at++) if (this.#groups[at] !== address[at]) return false;
    const rest = this.#bits & 15;
    if (rest === 0) return true;
    const shift = 16 - rest;
    return (this.#groups[whole] ?? 0) >> shift === (address[whole] ?? 0) >> shift;
  }
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

/**
 * @returns the address's groups, the same ones for an IPv4 address and its IPv6 form; null when it is
 *   no address. A zone (`%eth0`) says nothing about the address and is left out.
 */
export function parseAddress(text: string): Groups | null {
  if (isIPv4(text)) return [0, 0, 0, 0, 0, 0xffff, ...pairs(text)];
  if (!isIPv6(text)) return null;
  const bare = text.split('%', 1)[0] ?? '';
  const [head = '', tail] = bare.split('::');
  const front = groupsOf(head);
  if (tail === undefined) return front;
  const back = groupsOf(tail);
  return [...front, ...new Array<number>(8 - front.length - back.length).fill(0), ...back];
}

function groupsOf(text: string): number[] {
  if (text === '') return [];
  return text.split(':').flatMap((group) => (group.includes('.') ? pairs(group) : [Number.parseInt(group, 16)]));
}

function pairs(ipv4: string): [number, number] {
  const [a = 0, b = 0, c = 0, d = 0] = ipv4.split('.').map(Number);
  return [(a << 8) | b, (c << 8) | d];
}

const CACHED = 1000;
const cache = new Map<string, Cidr | null>();

/** As {@link parseCidr}, for ranges that an expression names again and again. */
export function cachedCidr(text: string): Cidr | null {
  let cidr = cache.get(text);
  if (cidr === undefined) {
    if (cache.size >= CACHED) cache.clear();
    cidr = text.length <= 64 ? parseCidr(text) : null;
    cache.set(text, cidr);
  }
  return cidr;
}
