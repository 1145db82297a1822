import fc from 'fast-check';
import { expect, it } from 'vitest';

// The pages have a tsconfig.json of their own.
const { indentedJson } = await import(
  new URL('../../../../src/web/device/inspector/body-view.tsx', import.meta.url).href
);

it('JSON is indented as JSON.stringify does it', () => {
  fc.assert(
    fc.property(fc.oneof(fc.array(fc.jsonValue()), fc.dictionary(fc.string(), fc.jsonValue())), (value) => {
      const text = JSON.stringify(value);
      expect(indentedJson(text)).toBe(JSON.stringify(JSON.parse(text), null, 2));
    }),
  );
});

it('numbers, duplicate members and escapes are shown as they were sent', () => {
  const shown = indentedJson('{"id":12345678901234567890, "a":1.0,\n"a":"\\u003c,:{}"}');
  expect(shown).toBe('{\n  "id": 12345678901234567890,\n  "a": 1.0,\n  "a": "\\u003c,:{}"\n}');
});

it.each(['{"a":', '{not json}', 'plain [text]', '12', ''])('%j is not changed', (text) => {
  expect(indentedJson(text)).toBe(text);
});
