import { BlockList } from 'node:net';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { parseAddress } from '../../src/lib/ip-address.ts';
import { parseCidr } from '../../src/traffic-policy/cidr.ts';

it.each([
  '',
  'x',
  '1.2',
  '010.0.0.1',
  '1.2.3.4/33',
  '::/129',
  '1.2.3.4/',
  '1.2.3.4/-1',
  '1.2.3.4/08',
  '1.2.3.4/8/8',
  '1.2.3.256',
])('refuses %j', (text) => {
  expect(parseCidr(text)).toBeNull();
});

it('agrees with Node on what is in a range', () => {
  const cases = fc.oneof(
    fc.tuple(fc.ipV4(), fc.integer({ min: 0, max: 32 }), fc.ipV4(), fc.constant('ipv4' as const)),
    fc.tuple(fc.ipV6(), fc.integer({ min: 0, max: 128 }), fc.ipV6(), fc.constant('ipv6' as const)),
  );
  fc.assert(
    fc.property(cases, ([network, bits, other, family]) => {
      const list = new BlockList();
      list.addSubnet(network, bits, family);
      const range = parseCidr(`${network}/${bits}`);
      for (const address of [network, other]) {
        expect(range?.contains(parseAddress(address) ?? [])).toBe(list.check(address, family));
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
  ['::ffff:203.0.113.0/120', '203.0.113.7', true],
])('keeps the two versions apart: %s and %s', (range, address, isIn) => {
  expect(parseCidr(range)?.contains(parseAddress(address) ?? [])).toBe(isIn);
});
