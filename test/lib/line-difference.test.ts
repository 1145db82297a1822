import fc from 'fast-check';
import { expect, it } from 'vitest';
import { lineDifference, unified } from '../../src/lib/line-difference.ts';

const lines = (text: string) => text.split('');

it('shows changed lines with their signs and three lines around them', () => {
  const shown = unified(lineDifference(lines('abcdefghijklm'), lines('abcdefxhijklm')));
  expect(shown).toEqual(['@@ -4,7 +4,7 @@', ' d', ' e', ' f', '-g', '+x', ' h', ' i', ' j']);
  expect(unified(lineDifference(lines('ab'), lines('ab')))).toEqual([]);
  expect(unified(lineDifference([], lines('ab')))).toEqual(['@@ -0,0 +1,2 @@', '+a', '+b']);
});

it('begins another part where more than six lines are equal', () => {
  const shown = unified(lineDifference(lines('xabcdefgx'), lines('yabcdefgy')));
  expect(shown.filter((line) => line.startsWith('@@'))).toEqual(['@@ -1,4 +1,4 @@', '@@ -6,4 +6,4 @@']);
});

it('leads from one text to the other, whatever they are', () => {
  const text = fc.array(fc.constantFrom('a', 'b', 'c', 'd'), { maxLength: 30 });
  fc.assert(
    fc.property(text, text, (before, after) => {
      const changes = lineDifference(before, after);
      expect(changes.filter(({ sign }) => sign !== '+').map(({ line }) => line)).toEqual(before);
      expect(changes.filter(({ sign }) => sign !== '-').map(({ line }) => line)).toEqual(after);
    }),
  );
});

it('ends soon for long texts that have nothing in common', () => {
  const many = (sign: string) => Array.from({ length: 40_000 }, (_, at) => `${sign}${at}`);
  expect(lineDifference(many('a'), many('b'))).toHaveLength(80_000);
});
