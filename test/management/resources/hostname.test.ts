import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseHostname, wildcardCovers } from '../../../src/management/resources/hostname.ts';

const code = (text: string) => {
  const result = parseHostname(text);
  return typeof result === 'string' ? result : result.code;
};

const label = fc.stringMatching(/^[a-z]([a-z0-9]{0,10}[a-z0-9])?$/);
const hostname = fc.array(label, { minLength: 2, maxLength: 5 }).map((labels) => labels.join('.'));

describe('parseHostname', () => {
  it.each([
    ['Cam.Example.COM', 'cam.example.com'],
    ['cam.example.com.', 'cam.example.com'],
    ['*.Dev.example.com', '*.dev.example.com'],
    ['*.localhost', '*.localhost'],
    ['bücher.example.com', 'xn--bcher-kva.example.com'],
    ['*.BÜCHER.example', '*.xn--bcher-kva.example'],
    ['xn--bcher-kva.example.com', 'xn--bcher-kva.example.com'],
    ['1and1.example.com', '1and1.example.com'],
  ])('brings %s into the canonical form %s', (text, normal) => {
    expect(code(text)).toBe(normal);
  });

  it.each([
    ['a.*.example.com', 402],
    ['*.*.example.com', 402],
    ['foo*.example.com', 403],
    ['https://example.com', 406],
    ['example.com:443', 406],
    ['a b.example.com', 406],
    ['ü/x.example.com', 406],
    ['-a.example.com', 407],
    ['a-.example.com', 408],
    ['a..example.com', 409],
    ['.example.com', 409],
    ['ab--c.example.com', 410],
    ['10.1.2.3', 411],
    [`${'a.'.repeat(600)}com`, 423],
    ['xn--a.example.com', 429],
    ['a_b.example.com', 438],
    ['', 448],
    ['.', 448],
    ['*.', 402],
    ['localhost', 448],
    [`${'a'.repeat(64)}.example.com`, 513],
    [`${'a.'.repeat(125)}com0`, 514],
  ])('rejects %s with %i', (text, expected) => {
    expect(code(text)).toBe(expected);
  });

  it('accepts a name of exactly 253 characters with labels of 63', () => {
    const name = `${`${'a'.repeat(63)}.`.repeat(3)}${'b'.repeat(61)}`;
    expect(name).toHaveLength(253);
    expect(code(name)).toBe(name);
  });

  it('keeps its own result unchanged, for any input', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), hostname, fc.webAuthority(), fc.string({ unit: 'grapheme' })), (text) => {
        const once = parseHostname(text);
        if (typeof once !== 'string') return;
        expect(once).toMatch(/^(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*$/);
        expect(parseHostname(once)).toBe(once);
      }),
    );
  });
});

describe('wildcardCovers', () => {
  it('covers every name below it and never the name itself', () => {
    fc.assert(
      fc.property(hostname, hostname, (base, below) => {
        expect(wildcardCovers(`*.${base}`, `${below}.${base}`)).toBe(true);
        expect(wildcardCovers(`*.${base}`, base)).toBe(false);
        expect(wildcardCovers(`*.${base}`, `x${base}`)).toBe(false);
        expect(wildcardCovers(base, `${below}.${base}`)).toBe(false);
      }),
    );
  });

  it('covers itself and wildcards below it, but not those above', () => {
    expect(wildcardCovers('*.example.com', '*.example.com')).toBe(true);
    expect(wildcardCovers('*.example.com', '*.a.example.com')).toBe(true);
    expect(wildcardCovers('*.a.example.com', '*.example.com')).toBe(false);
  });
});
