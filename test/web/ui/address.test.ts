import { domainToASCII } from 'node:url';
import { expect, it } from 'vitest';

// By its address: the types of a browser are not those of the tests.
const { unicodeForm } = await import(new URL('../../../src/web/ui/address.tsx', import.meta.url).href);

it.each([
  'bücher.example.com',
  '*.münchen.example',
  'παράδειγμα.gr',
  'пример.рф',
  'مثال.example',
  '例え.テスト',
  '예시.example',
  'a-ü-b.x.example',
])('%s is shown for its ASCII form', (name) => {
  const ascii = name.startsWith('*.') ? `*.${domainToASCII(name.slice(2))}` : domainToASCII(name);
  expect(ascii).toContain('xn--');
  expect(unicodeForm(ascii)).toBe(name);
  expect(unicodeForm(`https://${ascii.toUpperCase()}:8443/path?xn--`)).toBe(name);
});

it.each([
  'example.com',
  'https://example.com/xn--bcher-kva',
  // Two scripts in one label, as in lookalikes of known names.
  domainToASCII('pаypal.example'),
  // No encoding of anything: cut off, out of range, of ASCII alone, with a mark only, or a symbol.
  'xn--bcher-kv.example',
  'xn--99999999.example',
  'xn--abc-.example',
  `xn--${'z'.repeat(2000)}.example`,
  domainToASCII('☃.example'),
  'xn--.example',
  'xn--a\u202e.example',
])('%s has no form to show', (name) => {
  expect(unicodeForm(name)).toBeNull();
});
