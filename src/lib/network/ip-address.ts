import { isIPv4 } from 'node:net';
import ipaddr from 'ipaddr.js';

const { IPv4, IPv6 } = ipaddr;

export type IpAddress = ipaddr.IPv4 | ipaddr.IPv6;

/** A host as URLs have it: with brackets around an IPv6 address. */
export function urlHostOf(host: string): string {
  // A name has no colon. isIPv6() is avoided in this file: its first call takes 6 ms to compile a regular expression.
  return host.includes(':') ? `[${host}]` : host;
}

/** `host:port`, with brackets around an IPv6 address. */
export const hostPort = (host: string, port: number): string => `${urlHostOf(host)}:${port}`;

/** The host of a URL without the brackets of an IPv6 address. */
export const withoutBrackets = (host: string): string => host.replace(/^\[|\]$/g, '');

/** @param address `ip:port`, or `[ip]:port` for IPv6 */
export function hostOf(address: string): string {
  const end = address.lastIndexOf(':');
  return address.startsWith('[') ? address.slice(1, end - 1) : address.slice(0, end);
}

/** Whether a host (of AGENT_HOST, or of a Host header without its port) is always this machine. */
export function isLoopbackHost(host: string): boolean {
  const name = host.toLowerCase();
  return name === 'localhost' || name === '::1' || name === '[::1]' || (isIPv4(name) && name.startsWith('127.'));
}

/** Whether the host of a URL is an IP address; of an IPv6 address with its brackets. */
export function isAddressOfUrl(hostname: string): boolean {
  return hostname.startsWith('[') || /^\d+\.\d+\.\d+\.\d+$/.test(hostname);
}

/** Whether a listener on this address listens on all addresses of the machine (RFC 4291, section 2.5.2). */
export function isUnspecified(host: string): boolean {
  return host === '0.0.0.0' || host === '::';
}

/** Strips `::ffff:`, which a dual-stack listener puts before the addresses of IPv4 clients. */
export function withoutMapping(address: string): string {
  return address.startsWith('::ffff:') ? address.slice('::ffff:'.length) : address;
}

/**
 * Groups addresses by client: an IPv6 client may control a whole /56 (RIPE-690, section 4.2).
 *
 * @param address other texts are returned unchanged, except for the prefix of an IPv4-mapped address
 */
export function clientNetwork(address: string): string {
  const parsed = address.includes(':') ? parseAddress(address) : null;
  if (!(parsed instanceof IPv6)) return withoutMapping(address);
  const [first = 0, second = 0, third = 0, fourth = 0] = parsed.parts;
  const prefix = [first, second, third, fourth & 0xff00].map((group) => group.toString(16));
  return `${prefix.join(':')}::/56`;
}

/**
 * Parses an address without its zone (`%eth0`). An IPv4-mapped IPv6 address becomes the IPv4 address that it stands for.
 *
 * @returns null for anything else, including decimal, octal, hexadecimal and shortened spellings of IPv4
 */
export function parseAddress(text: string): IpAddress | null {
  const address = parseAsWritten(text);
  return address && unmapped(address);
}

/** @returns the IPv4 address that an IPv4-mapped IPv6 address stands for; any other address unchanged */
export function unmapped(address: IpAddress): IpAddress {
  return address instanceof IPv6 && address.isIPv4MappedAddress() ? address.toIPv4Address() : address;
}

/** Parses an address as {@link parseAddress} does, but leaves IPv4-mapped IPv6 addresses as they are. */
export function parseAsWritten(text: string): IpAddress | null {
  // Node's strict checks come first: ipaddr.js also reads 0x7f.1, 017700000001 and 2130706433.
  if (isIPv4(text)) return IPv4.parse(text);
  const bare = text.replace(/%[\w.:-]+$/, '');
  if (!/^[\da-f:.]+$/i.test(bare) || !URL.canParse(`http://[${bare}]`)) return null;
  // ipaddr.js takes ::192.0.2.1 (RFC 4291, section 2.5.5.1) for ::ffff:192.0.2.1, so it gets no dots.
  return IPv6.parse(bare.includes('.') ? canonicalIpv6(bare) : bare);
}

/** @returns the 4 bytes of an IPv4 address or the 16 of an IPv6 address; null for any other text */
export function addressBytes(text: string): Buffer | null {
  const address = parseAsWritten(text);
  return address && Buffer.from(address.toByteArray());
}

/**
 * Writes an IPv6 address in the one form of RFC 5952, but with hexadecimal groups only, as in URLs.
 *
 * @param address without a zone
 */
export function canonicalIpv6(address: string): string {
  return new URL(`http://[${address}]`).hostname.slice(1, -1);
}

/** The prefix length of `::ffff:0:0/96`, which holds the IPv4-mapped addresses. */
const MAPPED_BITS = 96;

/** A range of IP addresses in CIDR notation. */
export class Cidr {
  /** Addresses are compared with this: an IPv4 range for a range of IPv4-mapped addresses. */
  readonly #start: IpAddress;
  readonly #bits: number;

  constructor(
    /** As written. */
    readonly text: string,
    /** The start as written, without the mapping to IPv4; bits beyond the prefix may be set. */
    private readonly start: IpAddress,
    readonly prefix: number,
  ) {
    const isMapped = prefix >= MAPPED_BITS && unmapped(start) !== start;
    this.#start = isMapped ? unmapped(start) : start;
    this.#bits = isMapped ? prefix - MAPPED_BITS : prefix;
  }

  /**
   * Whether an address is in the range. An IPv6 range contains no IPv4 address: `::/0` means all of IPv6 and nothing else.
   *
   * @param address from `parseAddress`
   */
  contains(address: IpAddress): boolean {
    return address.kind() === this.#start.kind() && address.match(this.#start, this.#bits);
  }

  /** Whether bits beyond the prefix are set, as in `10.0.0.1/8`. */
  get hasHostBits(): boolean {
    return this.canonical !== `${this.start}/${this.prefix}`;
  }

  /** The range with its lowest address, in the spelling of RFC 5952. */
  get canonical(): string {
    const family = this.start.kind() === 'ipv4' ? ipaddr.IPv4 : ipaddr.IPv6;
    return `${family.networkAddressFromCIDR(`${this.start}/${this.prefix}`)}/${this.prefix}`;
  }
}

/**
 * Parses a range. Bits beyond the prefix are ignored.
 *
 * @param text `10.0.0.0/8`, `2001:db8::/32`, or a single address, without a zone: it names an interface of one machine
 * @returns null for any other text
 */
export function parseCidr(text: string): Cidr | null {
  const [address = '', digits, ...rest] = text.split('/');
  const start = address.includes('%') ? null : parseAsWritten(address);
  if (start === null || rest.length > 0) return null;
  const width = start.kind() === 'ipv4' ? 32 : 128;
  const prefix = digits === undefined ? width : Number(/^(?:0|[1-9]\d{0,2})$/.exec(digits)?.[0] ?? Number.NaN);
  return prefix <= width ? new Cidr(text, start, prefix) : null;
}

/** Parses a constant list. Throws an Error for an invalid range. */
export function cidrList(texts: readonly string[]): Cidr[] {
  return texts.map((text) => {
    const range = parseCidr(text);
    if (range === null) throw new Error(`${text}: not an address range`);
    return range;
  });
}

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

/** The name of an address in the reverse DNS (RFC 1035, section 3.5; RFC 3596, section 2.5). */
export function reversedAddress(text: string): string {
  const bytes = [...(addressBytes(text) ?? [])];
  if (bytes.length === 4) return `${bytes.reverse().join('.')}.in-addr.arpa`;
  const digits = bytes.map((byte) => byte.toString(16).padStart(2, '0')).join('');
  return `${[...digits].reverse().join('.')}.ip6.arpa`;
}
