import { isIPv4 } from 'node:net';
import { parseAddress } from '../../lib/ip-address.ts';

/**
 * The IPv4 address that an IPv6 address stands for: mapped (`::ffff:0:0/96`), translated
 * (`::ffff:0:0:0/96`, RFC 7915's SIIT), compatible (`::/96`), NAT64 (`64:ff9b::/96`, RFC 6052) and 6to4 (`2002::/16`,
 * RFC 3056) addresses all lead to one.
 *
 * @returns null when the address is IPv4 already or leads to none
 */
export function embeddedIpv4(address: string): string | null {
  const groups = isIPv4(address) ? null : parseAddress(address);
  if (groups === null) return null;
  const startsWith = (...prefix: number[]) => prefix.every((group, at) => groups[at] === group);
  const mapped = startsWith(0, 0, 0, 0, 0, 0xffff);
  const translated = startsWith(0, 0, 0, 0, 0xffff, 0);
  const nat64 = startsWith(0x64, 0xff9b, 0, 0, 0, 0);
  // :: and ::1 are addresses of their own.
  const compatible = startsWith(0, 0, 0, 0, 0, 0) && !(groups[6] === 0 && (groups[7] ?? 0) <= 1);
  if (mapped || translated || nat64 || compatible) return dotted(groups[6], groups[7]);
  return startsWith(0x2002) ? dotted(groups[1], groups[2]) : null;
}

function dotted(high = 0, low = 0): string {
  return [high >> 8, high & 255, low >> 8, low & 255].join('.');
}
