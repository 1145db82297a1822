import { BlockList, isIPv6 } from 'node:net';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { addressBytes, clientNetwork, hostPort, parseAddress, parseCidr } from '../../../src/lib/network/ip-address.ts';

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

describe('parseCidr', () => {
  it.each([
    '',
    'x',
    '1.2',
    '2130706433',
    '017700000001',
    '0x7f.0.0.1',
    '127.1/8',
    '010.0.0.1',
    '::ffff:010.0.0.1/104',
    'fe80::1%eth0/64',
    '1.2.3.4/33',
    '::/129',
    '1.2.3.4/',
    '1.2.3.4/-1',
    '1.2.3.4/08',
    '1.2.3.4/8/8',
    '1.2.3.256',
    '[::1]/128',
    '::1]/[',
  ])('rejects %j', (text) => {
    expect(parseCidr(text)).toBeNull();
  });

  it.each([
    ['10.1.2.3/8', '10.0.0.0/8', true],
    ['10.0.0.0/8', '10.0.0.0/8', false],
    ['2001:DB8:0:0::/32', '2001:db8::/32', false],
    ['::10.1.2.3', '::a01:203/128', false],
    ['::ffff:10.0.0.0/104', '::ffff:a00:0/104', false],
  ])('converts %s to the canonical form %s', (text, canonical, hasHostBits) => {
    expect(parseCidr(text)).toMatchObject({ text, canonical, hasHostBits });
  });
});

describe('Cidr.contains', () => {
  it('agrees with BlockList of Node', () => {
    const cases = fc.oneof(
      fc.tuple(fc.ipV4(), fc.integer({ min: 0, max: 32 }), fc.ipV4(), fc.constant('ipv4' as const)),
      fc.tuple(fc.ipV6(), fc.integer({ min: 0, max: 128 }), fc.ipV6(), fc.constant('ipv6' as const)),
    );
    fc.assert(
      fc.property(cases, ([network, bits, other, family]) => {
        const list = new BlockList();
        list.addSubnet(network, bits, family);
        const range = parseCidr(`${network}/${bits}`);
        for (const text of [network, other]) {
          const address = parseAddress(text);
          expect(address && range?.contains(address)).toBe(list.check(text, family));
        }
      }),
      { numRuns: 500 },
    );
  });

  it.each([
    ['::/0', '203.0.113.7', false],
    ['::/80', '203.0.113.7', false],
    ['::/0', '2001:db8::7', true],
    ['0.0.0.0/0', '2001:db8::7', false],
    ['0.0.0.0/0', '::ffff:203.0.113.7', true],
    ['0.0.0.0/0', '::203.0.113.7', false],
    ['::/96', '::203.0.113.7', true],
    ['::ffff:203.0.113.0/120', '203.0.113.7', true],
    ['::ffff:203.0.113.0/120', '203.0.114.7', false],
  ])('keeps IPv4 and IPv6 apart: range %s, address %s: %s', (range, text, isIn) => {
    const address = parseAddress(text);
    expect(address && parseCidr(range)?.contains(address)).toBe(isIn);
  });
});
