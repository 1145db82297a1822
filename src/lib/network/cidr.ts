import ipaddr from 'ipaddr.js';
import { type IpAddress, parseAsWritten, unmapped } from './ip-address.ts';

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
