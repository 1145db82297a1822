import { isIPv6 } from 'node:net';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { addressBytes, clientNetwork, hostPort, parseAddress } from '../../../src/lib/network/ip-address.ts';

it.each([
  ['gateway.example', 'gateway.example:443'],
  ['192.0.2.1', '192.0.2.1:443'],
  ['2001:db8::1', '[2001:db8::1]:443'],
])('hostPort formats %s with a port', (host, text) => {
  expect(hostPort(host, 443)).toBe(text);
});

it.each([
  ['2001:db8:1:2::9', '2001:db8:1:ff:ffff::1'],
  ['2001:db8::1', '2001:db8:0:0:5:6:7:8'],
  ['::ffff:192.0.2.1', '192.0.2.1'],
])('clientNetwork treats %s and %s as one client', (one, other) => {
  expect(clientNetwork(one)).toBe(clientNetwork(other));
});

it.each([
  ['2001:db8:1:2::1', '2001:db8:1:102::1'],
  ['192.0.2.1', '192.0.2.2'],
  ['not:an:address', 'nor:this'],
])('clientNetwork treats %s and %s as different clients', (one, other) => {
  expect(clientNetwork(one)).not.toBe(clientNetwork(other));
});

it.each([
  ['192.0.2.1', 'c0000201'],
  ['2001:db8::102', '20010db8000000000000000000000102'],
  ['::ffff:192.0.2.1', '00000000000000000000ffffc0000201'],
  ['example.com', undefined],
  ['::192.0.2.1', '000000000000000000000000c0000201'],
  ['fe80::1%eth0', 'fe800000000000000000000000000001'],
])('addressBytes converts %s to bytes', (text, hex) => {
  expect(addressBytes(text)?.toString('hex')).toBe(hex);
});

it.each([
  ['2001:DB8:0::1', '2001:db8::1'],
  ['::ffff:192.0.2.1', '192.0.2.1'],
  ['::ffff:c000:201', '192.0.2.1'],
  ['::192.0.2.1', '::c000:201'],
  ['fe80::1%eth0', 'fe80::1'],
])('parseAddress reads %s as %s', (text, canonical) => {
  expect(parseAddress(text)?.toString()).toBe(canonical);
});

it.each(['', '1.2.3', '01.2.3.4', '0x7f000001', '2130706433', '192.0.2.1%eth0', '[::1]', '::1]/[', '::1\n', '1::2::3'])(
  'parseAddress rejects %j',
  (text) => {
    expect(parseAddress(text)).toBeNull();
  },
);

it('parseAddress reads exactly the IPv6 addresses that Node reads', () => {
  const piece = fc.constantFrom(':', '::', '0', 'ffff', '1', '00000', 'g', '1.2.3.4', '01.2.3.4', '.');
  const anyText = fc.array(piece, { maxLength: 12 }).map((pieces) => pieces.join(''));
  fc.assert(
    fc.property(fc.oneof(fc.ipV6(), anyText), (text) => {
      expect(text.includes(':') && parseAddress(text) !== null).toBe(isIPv6(text));
    }),
    { numRuns: 2000 },
  );
});
