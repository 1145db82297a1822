import fc from 'fast-check';
import { expect, it } from 'vitest';
import { JsonTextError, parseJson } from '../../src/lib/json-text.ts';
import { fuzz } from '../support/fuzz.ts';

it.each([
  ['{"a":x}', 'line 1, column 6: expected a value'],
  ['{\n  "a": 1,\n}', 'line 3, column 1: expected a name in double quotes'],
  ['[1, 2', 'line 1, column 6: unexpected end; expected , or ]'],
  ['{"a" 1}', 'line 1, column 6: expected :'],
  ['{"a":1 "b":2}', 'line 1, column 8: expected , or }'],
  ['{} {}', 'line 1, column 4: expected end of input'],
  ["{'a':1}", 'line 1, column 2: expected a name in double quotes or }'],
  ['["a\nb"]', 'line 1, column 2: expected a valid string'],
  ['', 'line 1, column 1: unexpected end; expected a value'],
  [`${'['.repeat(100_000)}`, 'line 1, column 65: nested deeper than 64 levels'],
])('reports the position of the error in %j', (text, message) => {
  expect(() => parseJson(text)).toThrow(message);
});

it('accepts 64 levels, and no more, also within text with brackets', () => {
  const nested = (levels: number) => `${'{"[":['.repeat(levels / 2)}1${']}'.repeat(levels / 2)}`;
  expect(parseJson(nested(64))).toEqual(JSON.parse(nested(64)));
  expect(() => parseJson(nested(66))).toThrow('nested deeper than 64 levels');
});

it('accepts exactly the texts that JSON.parse accepts', () => {
  const snippets = fc.constantFrom(
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    '"a"',
    '"\\u00e4"',
    '-1.5e3',
    '01',
    'true',
    'nul',
    ' ',
    '\n',
  );
  const text = fc.oneof(
    fc.json(),
    fc.array(snippets, { maxLength: 8 }).map((parts) => parts.join('')),
  );
  fc.assert(
    fc.property(text, (candidate) => {
      let expected: unknown;
      try {
        expected = JSON.parse(candidate);
      } catch {
        expect(() => parseJson(candidate)).toThrow(JsonTextError);
        return;
      }
      expect(parseJson(candidate)).toEqual(expected);
    }),
    fuzz(2_000),
  );
});
