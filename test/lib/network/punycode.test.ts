import { expect, it } from 'vitest';
import { hasInvalidPunycode } from '../../../src/lib/network/punycode.ts';

it.each(['example.com', 'xn--bcher-kva.example', 'a.xn--ls8h', 'xn--fa-hia.de', 'xn--p1ai', 'axn--a.de'])(
  'hasInvalidPunycode accepts %s',
  (name) => {
    expect(hasInvalidPunycode(name)).toBe(false);
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
])('hasInvalidPunycode rejects a label that %s: %s', (_, name) => {
  expect(hasInvalidPunycode(name)).toBe(true);
});
