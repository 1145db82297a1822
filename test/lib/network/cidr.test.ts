import { BlockList } from 'node:net';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseCidr } from '../../../src/lib/network/cidr.ts';
import { parseAddress } from '../../../src/lib/network/ip-address.ts';

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
