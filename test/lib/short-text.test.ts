import { expect, it } from 'vitest';
import { shortBytes, shortText } from '../../src/lib/short-text.ts';

it.each([
  ['abc', 3, 'abc'],
  ['abcd', 3, 'abc'],
  ['ab😀', 4, 'ab😀'],
  ['ab😀c', 3, 'ab'],
  ['ab😀c', 4, 'ab😀'],
])('shortText(%j, %i) is %j', (text, max, short) => {
  expect(shortText(text, max)).toBe(short);
});

it.each([
  ['ab', 2, 'ab'],
  ['aЖb', 2, 'a'],
  ['aЖb', 3, 'aЖ'],
  ['😀😀', 7, '😀'],
])('shortBytes(%j, %i) is %j', (text, max, short) => {
  expect(shortBytes(text, max)).toBe(short);
});
