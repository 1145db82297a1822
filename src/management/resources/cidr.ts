import { addressBytes, canonicalIpv6 } from '../../lib/ip-address.ts';
import type { Refusal } from './refusal.ts';

/**
 * Checks a range of addresses such as `203.0.113.0/24` or `2001:db8::/32` and brings it into normal form.
 *
 * @returns the normal form, or why it is none
 */
export function parseCidr(text: string): string | Refusal {
  const [address = '', mask, ...more] = text.split('/');
  // A zone (`fe80::1%eth0`) names an interface of one machine and has no place in a rule.
  const bytes = address.includes('%') ? null : addressBytes(address);
  if (more.length > 0 || bytes === null) return { code: 1406, text: 'must be a range such as 203.0.113.0/24' };
  const width = bytes.length * 8;
  if (mask === undefined) return { code: 1413, text: `the mask is missing: /${width} means this one address` };
  if (!/^(0|[1-9]\d{0,2})$/.test(mask) || Number(mask) > width) {
    return { code: 1406, text: `the mask must be from /0 to /${width}` };
  }
  const value = BigInt(`0x${bytes.toString('hex')}`);
  const hostBits = BigInt(width - Number(mask));
  const network = (value >> hostBits) << hostBits;
  const range = `${toText(network, width)}/${mask}`;
  return network === value ? range : { code: 1409, text: `the address is not the lowest of its range: use ${range}` };
}

function toText(address: bigint, width: number): string {
  const digits = address.toString(16).padStart(width / 4, '0');
  if (width === 32) return Buffer.from(digits, 'hex').join('.');
  return canonicalIpv6(digits.replace(/.{4}(?=.)/g, '$&:'));
}
