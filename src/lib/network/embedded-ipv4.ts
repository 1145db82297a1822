import { cidrList } from './cidr.ts';
import { parseAsWritten, unmapped } from './ip-address.ts';

/** IPv4-compatible, SIIT (RFC 7915) and NAT64 (RFC 6052) addresses end with an IPv4 address. */
const IPV4_AT_END = cidrList(['::/96', '::ffff:0:0:0/96', '64:ff9b::/96']);
/** 6to4 addresses (RFC 3056) contain an IPv4 address after their prefix. */
const SIX_TO_FOUR = cidrList(['2002::/16']);
/** `::` and `::1` are in ::/96 but contain no IPv4 address. */
const NOT_EMBEDDING = cidrList(['::/127']);

/** @returns the IPv4 address that an IPv6 address contains; null when it contains none or is itself IPv4 */
export function embeddedIpv4(text: string): string | null {
  const address = parseAsWritten(text);
  if (address?.kind() !== 'ipv6') return null;
  const mapped = unmapped(address);
  if (mapped !== address) return mapped.toString();
  const isIn = (networks: ReturnType<typeof cidrList>) => networks.some((network) => network.contains(address));
  const bytes = address.toByteArray();
  if (isIn(SIX_TO_FOUR)) return bytes.slice(2, 6).join('.');
  return isIn(IPV4_AT_END) && !isIn(NOT_EMBEDDING) ? bytes.slice(12).join('.') : null;
}
