import { expect, it } from 'vitest';
import { hostnameFlaws, isHostname } from '../../../src/lib/network/hostname-grammar.ts';

it.each(['example.com', 'xn--bcher-kva.example', 'a.xn--ls8h', 'xn--fa-hia.de', 'xn--p1ai', 'axn--a.de'])(
  'accepts %s',
  (name) => {
    expect(hostnameFlaws(name)).not.toContain('punycode');
  },
);

it.each([
  ['decodes to nothing', 'xn--a.example.com'],
  ['decodes to nothing', 'xn--zzzzzz99999999.localhost'],
  ['has no code', 'a.xn--'],
  ['encodes ASCII', 'xn--abc-.x'],
  ['encodes a label that starts with xn--', 'xn--xn---epa'],
  ['encodes a capital letter', 'xn--i-9cb.x'],
  ['encodes a full stop', 'xn--a-ecp.ru'],
  ['encodes a joiner alone', 'xn--1ug.x'],
])('rejects a label that %s: %s', (_, name) => {
  expect(hostnameFlaws(name)).toContain('punycode');
});

it.each([
  ['a_b.-c.d-.e..x', 'underscore', 'label starts with a hyphen', 'label ends with a hyphen', 'empty label'],
  ['.a.', 'starts with a dot', 'ends with a dot'],
  [`${'a'.repeat(64)}.b!`, 'label too long', 'character'],
  ['ab--c.abc--d', 'hyphens in third and fourth place', 'double hyphen', 'double hyphen'],
  [`${'a.'.repeat(127)}0x7f`, 'ends in a number', 'too long'],
  ['', 'empty label'],
])('%s is no hostname for each of its reasons', (name, ...flaws) => {
  expect(hostnameFlaws(name)).toEqual(flaws);
});

it('a hostname can have hyphens anywhere inside, and what a caller accepts', () => {
  expect(isHostname('a--b.example')).toBe(true);
  expect(isHostname('_dns.example')).toBe(false);
  expect(isHostname('_dns.example', 'underscore')).toBe(true);
});
