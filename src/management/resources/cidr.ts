import { isIPv4, isIPv6 } from 'node:net';
import type { Refusal } from './refusal.ts';

/**
 * Checks a range of addresses such as `203.0.113.0/24` or `2001:db8::/32` and brings it into normal form.
 *
 * @returns the normal form, or why it is none
 */
export function parseCidr(text: string): string | Refusal {
  const [address = '', mask, ...more] = text.split('/');
  if (more.length > 0 || !isAddress(address)) return { code: 1406, text: 'must be a range such as 203.0.113.0/24' };
  const width = isIPv4(address) ? 32 : 128;
  if (mask === undefined) return { code: 1413, text: `the mask is missing: /${width} means this one address` };
  if (!/^(0|[1-9]\d{0,2})$/.test(mask) || Number(mask) > width) {
    return { code: 1406, text: `the mask must be from /0 to /${width}` };
  }
  const value = toNumber(address);
  const hostBits = BigInt(width - Number(mask));
  const network = (value >> hostBits) << hostBits;
  const range = `${toText(network, width)}/${mask}`;
  return network === value ? range : { code: 1409, text: `the address is not the lowest of its range: use ${range}` };
}

/** A zone (`fe80::1%eth0`) names an interface of one machine and has no place in a rule. */
function isAddress(text: string): boolean {
  return isIPv4(text) || (isIPv6(text) && !text.includes('%'));
}

function toNumber(address: string): bigint {
  if (isIPv4(address)) return address.split('.').reduce((sum, byte) => (sum << 8n) + BigInt(byte), 0n);
  const [head = '', tail = ''] = canonicalIPv6(address).split('::');
  const groups = (part: string) => (part === '' ? [] : part.split(':'));
  const zeros = 8 - groups(head).length - groups(tail).length;
  return [...groups(head), ...Array<string>(zeros).fill('0'), ...groups(tail)].reduce(
    (sum, group) => (sum << 16n) + BigInt(`0x${group}`),
    0n,
  );
}

function toText(value: bigint, width: number): string {
  const size = width === 32 ? 8 : 16;
  const parts = Array.from(
    { length: width / size },
    (_, index) => (value >> BigInt(width - size * (index + 1))) & ((1n << BigInt(size)) - 1n),
  );
  return width === 32 ? parts.join('.') : canonicalIPv6(parts.map((part) => part.toString(16)).join(':'));
}

/** The URL parser writes an IPv6 address as RFC 5952 wants it, in hexadecimal groups alone. */
function canonicalIPv6(address: string): string {
  return new URL(`http://[${address}]`).hostname.slice(1, -1);
}
