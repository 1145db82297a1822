import { isIPv4, isIPv6 } from 'node:net';

/** The eight 16-bit groups of an address; an IPv4 address is in the last two, after ::ffff:. */
export type Groups = readonly number[];

/** `host:port`, with brackets around an IPv6 address. */
export function hostPort(host: string, port: number): string {
  // No name has a colon, and isIPv6()'s expression takes 6 ms to compile when the first address is asked about.
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** Whether to listen on it is to listen on every address of the machine (RFC 4291, section 2.5.2). */
export function isUnspecified(host: string): boolean {
  return host === '0.0.0.0' || host === '::';
}

/** On a dual-stack listener IPv4 peers show up as IPv6 ones (`::ffff:192.0.2.1`). */
export function withoutMapping(address: string): string {
  return address.startsWith('::ffff:') ? address.slice('::ffff:'.length) : address;
}

/**
 * Whom to count an address for: an IPv6 client commands a whole /64.
 *
 * @param address anything that is no IPv6 address is returned as it is, without the mapping
 */
export function clientNetwork(address: string): string {
  const plain = withoutMapping(address);
  const groups = plain.includes(':') ? parseAddress(plain) : null;
  if (groups === null) return plain;
  const prefix = groups.slice(0, 4).map((group) => group.toString(16));
  return `${prefix.join(':')}::/64`;
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

/** @returns the 4 bytes of an IPv4 address or the 16 of an IPv6 one; null when it is no address */
export function addressBytes(text: string): Buffer | null {
  const groups = parseAddress(text);
  if (groups === null) return null;
  const bytes = groups.flatMap((group) => [group >> 8, group & 0xff]);
  return Buffer.from(isIPv4(text) ? bytes.slice(-4) : bytes);
}

/**
 * @param address an IPv6 address without a zone
 * @returns its one text by RFC 5952, in hexadecimal groups alone: the URL parser writes it so
 */
export function canonicalIpv6(address: string): string {
  return new URL(`http://[${address}]`).hostname.slice(1, -1);
}
