import { isIPv6 } from 'node:net';

/**
 * The IPv4 address that an IPv6 address stands for: mapped (`::ffff:0:0/96`), translated
 * (`::ffff:0:0:0/96`, RFC 7915's SIIT), compatible (`::/96`), NAT64 (`64:ff9b::/96`, RFC 6052) and 6to4 (`2002::/16`,
 * RFC 3056) addresses all lead to one.
 *
 * @returns null when the address is IPv4 already or leads to none
 */
export function embeddedIpv4(address: string): string | null {
  if (!isIPv6(address)) return null;
  const groups = groupsOf(address);
  const startsWith = (...prefix: number[]) => prefix.every((group, at) => groups[at] === group);
  const mapped = startsWith(0, 0, 0, 0, 0, 0xffff);
  const translated = startsWith(0, 0, 0, 0, 0xffff, 0);
  const nat64 = startsWith(0x64, 0xff9b, 0, 0, 0, 0);
  // :: and ::1 are addresses of their own.
  const compatible = startsWith(0, 0, 0, 0, 0, 0) && !(groups[6] === 0 && (groups[7] ?? 0) <= 1);
  if (mapped || translated || nat64 || compatible) return dotted(groups[6], groups[7]);
  return startsWith(0x2002) ? dotted(groups[1], groups[2]) : null;
}

/** The eight 16-bit groups of an IPv6 address, zone left out. */
function groupsOf(address: string): number[] {
  const canonical = new URL(`http://[${address.replace(/%.*$/, '')}]`).hostname.slice(1, -1);
  const [head = '', tail] = canonical.split('::');
  const parse = (part: string) => (part === '' ? [] : part.split(':').map((group) => Number.parseInt(group, 16)));
  const [front, back] = [parse(head), parse(tail ?? '')];
  return [...front, ...new Array<number>(8 - front.length - back.length).fill(0), ...back];
}

function dotted(high = 0, low = 0): string {
  return [high >> 8, high & 255, low >> 8, low & 255].join('.');
}
