import { BlockList } from 'node:net';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseRange } from '../../../src/management/resources/ip-policy.ts';

const code = (text: string) => {
  const result = parseRange(text);
  return typeof result === 'string' ? result : result.code;
};

describe('parseRange', () => {
  it.each([
    ['203.0.113.0/24', '203.0.113.0/24'],
    ['0.0.0.0/0', '0.0.0.0/0'],
    ['10.1.2.3/32', '10.1.2.3/32'],
    ['2001:DB8:0:0::/32', '2001:db8::/32'],
    ['::/0', '::/0'],
    ['::1/128', '::1/128'],
    ['::ffff:10.0.0.0/104', '::ffff:a00:0/104'],
  ])('brings %s into the canonical form %s', (text, normal) => {
    expect(code(text)).toBe(normal);
  });

  it.each([
    ['203.0.113.0', 1413],
    ['2001:db8::', 1413],
    ['203.0.113.0/', 1406],
    ['203.0.113.0/33', 1406],
    ['::/129', 1406],
    ['203.0.113.0/024', 1406],
    ['203.0.113.0/24/1', 1406],
    ['010.0.0.1/32', 1406],
    ['1.2/16', 1406],
    ['fe80::1%eth0/128', 1406],
    ['example.com/24', 1406],
    ['', 1406],
    ['203.0.113.7/24', 1409],
    ['2001:db8::1/32', 1409],
  ])('rejects %s with %i', (text, expected) => {
    expect(code(text)).toBe(expected);
  });

  it('suggests the canonical range when host bits are set', () => {
    expect(parseRange('203.0.113.7/24')).toMatchObject({ text: expect.stringContaining('203.0.113.0/24') });
    expect(parseRange('2001:db8:ffff::1/33')).toMatchObject({ text: expect.stringContaining('2001:db8:8000::/33') });
  });

  it('suggests a range that contains the address, for any address', () => {
    const v4 = fc.tuple(fc.ipV4(), fc.integer({ min: 0, max: 32 }), fc.constant('ipv4' as const));
    const v6 = fc.tuple(fc.ipV6(), fc.integer({ min: 0, max: 128 }), fc.constant('ipv6' as const));
    fc.assert(
      fc.property(fc.oneof(v4, v6), ([address, mask, family]) => {
        const result = parseRange(`${address}/${mask}`);
        const range = typeof result === 'string' ? result : /use (\S+)$/.exec(result.text)?.[1];
        expect(range).toBeDefined();
        expect(parseRange(range ?? '')).toBe(range);
        const list = new BlockList();
        list.addSubnet(range?.split('/')[0] ?? '', mask, family);
        expect(list.check(address, family)).toBe(true);
      }),
    );
  });
});
