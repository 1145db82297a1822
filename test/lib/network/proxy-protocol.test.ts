import { expect, it } from 'vitest';
import { parseProxyHeader, proxyHeader } from '../../../src/lib/network/proxy-protocol.ts';

const IPV4 = { clientIp: '203.0.113.7', clientPort: 4567, serverIp: '192.0.2.1', serverPort: 443 };
const IPV6 = { clientIp: '2001:db8::7', clientPort: 4567, serverIp: '64:ff9b::192.0.2.1', serverPort: 443 };
const UNKNOWN = { ...IPV4, clientIp: '' };

it('writes version 1 as a line', () => {
  expect(String(proxyHeader(1, IPV4))).toBe('PROXY TCP4 203.0.113.7 192.0.2.1 4567 443\r\n');
  expect(String(proxyHeader(1, IPV6))).toBe('PROXY TCP6 2001:db8::7 64:ff9b::192.0.2.1 4567 443\r\n');
  expect(String(proxyHeader(1, UNKNOWN))).toBe('PROXY UNKNOWN\r\n');
});

it('writes version 2 in binary, each family with its length', () => {
  const signature = '0d0a0d0a000d0a515549540a';
  expect(proxyHeader(2, IPV4).toString('hex')).toBe(`${signature}2111000ccb007107c000020111d701bb`);
  expect(proxyHeader(2, IPV6).toString('hex')).toBe(
    `${signature}2121002420010db80000000000000000000000070064ff9b0000000000000000c000020111d701bb`,
  );
  expect(proxyHeader(2, UNKNOWN).toString('hex')).toBe(`${signature}21000000`);
});

it.each([1, 2] as const)('reads version %i as it was written, however it arrives', (version) => {
  for (const ends of [IPV4, { ...IPV6, serverIp: '2001:db8::1' }]) {
    const header = proxyHeader(version, ends);
    const bytes = Buffer.concat([header, Buffer.from('GET /')]);
    for (let length = 0; length < header.length; length++)
      expect(parseProxyHeader(bytes.subarray(0, length)), String(length)).toBeUndefined();
    expect(parseProxyHeader(bytes)).toEqual({ ends, length: header.length, values: [] });
  }
  const unknown = proxyHeader(version, UNKNOWN);
  expect(parseProxyHeader(unknown)).toEqual({ ends: null, length: unknown.length, values: [] });
});

it('reads what balancers add, and their own connections', () => {
  const signature = Buffer.from('0d0a0d0a000d0a515549540a', 'hex');
  const binary = (rest: string) => Buffer.concat([signature, Buffer.from(rest, 'hex')]);
  // With the TLV of an AWS load balancer.
  expect(parseProxyHeader(binary('21110013cb007107c000020111d701bbea000401020304'))).toEqual({
    ends: IPV4,
    length: 35,
    values: [{ type: 0xea, value: Buffer.from([1, 2, 3, 4]) }],
  });
  expect(parseProxyHeader(binary('2000000c000000000000000000000000'))).toMatchObject({ ends: null, length: 28 });
  expect(parseProxyHeader(Buffer.from('PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n'))).toMatchObject({ ends: null });
});

it.each([
  ['version 2', proxyHeader(2, { ...IPV4, clientIp: '::ffff:203.0.113.7', serverIp: '::ffff:192.0.2.1' })],
  ['version 1', 'PROXY TCP6 ::ffff:203.0.113.7 ::FFFF:192.0.2.1 4567 443\r\n'],
  ['version 1, in hexadecimal', 'PROXY TCP6 ::ffff:cb00:7107 0:0:0:0:0:ffff:c000:0201 4567 443\r\n'],
])('reads IPv4-mapped addresses as what they stand for: %s', (_what, header) => {
  expect(parseProxyHeader(Buffer.from(header))?.ends).toEqual(IPV4);
});

it.each<[string, string | Buffer]>([
  ['a ClientHello', Buffer.from('160301', 'hex')],
  ['a request', 'GET / HTTP/1.1'],
  ['an address of the wrong family', 'PROXY TCP4 2001:db8::7 192.0.2.1 1 2\r\n'],
  ['a port too large', 'PROXY TCP4 192.0.2.7 192.0.2.1 1 65536\r\n'],
  ['a member too many', 'PROXY TCP4 192.0.2.7 192.0.2.1 1 2 3\r\n'],
  ['a line without end', `PROXY TCP4 ${'1'.repeat(101)}`],
  ['a header of 64 KB', Buffer.from('0d0a0d0a000d0a515549540a2111ffff', 'hex')],
  ['addresses that are cut off', Buffer.from('0d0a0d0a000d0a515549540a21110004cb007107', 'hex')],
  ['another version', Buffer.from('0d0a0d0a000d0a515549540a3111000ccb007107c000020111d701bb', 'hex')],
])('does not take %s for a header', (_what, bytes) => {
  expect(parseProxyHeader(Buffer.from(bytes))).toBeNull();
});
