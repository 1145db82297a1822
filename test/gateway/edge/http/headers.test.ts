import { expect, it } from 'vitest';
import { HeaderBlock, HeadersTooLong } from '../../../../src/gateway/edge/http/headers.ts';

const LINES = 'A: 1\r\nB: 2';
const BLOCK = `${LINES}\r\n\r\n`;

/** Feeds `before`, then a block in pieces of a size, and returns its text and the bytes that it took. */
function collect(limit: number, size: number, before = '') {
  const block = new HeaderBlock(limit);
  block.start(before);
  const text = `${BLOCK}body`;
  let taken = 0;
  for (let at = 0; at < text.length && !block.complete; at += size) {
    taken += block.take(Buffer.from(`other${text.slice(at, at + size)}`), 5) - 5;
  }
  return { text: block.text, complete: block.complete, taken };
}

const sizes = Array.from({ length: BLOCK.length + 4 }, (_, index) => index + 1);

const whole = { text: `${LINES}\r\n`, complete: true, taken: BLOCK.length };

it('collects a block of exactly the limit that arrives at once', () => {
  expect(collect(LINES.length, 100)).toEqual(whole);
});

// A split end of the block counts towards the limit, as it could still turn out to be part of a line.
it.each(sizes)('collects a block below the limit from pieces of %i bytes, and rejects one above it', (size) => {
  expect(collect(LINES.length + 3, size)).toEqual(whole);
  expect(() => collect(LINES.length - 1, size)).toThrow(HeadersTooLong);
});

it('counts the text that it starts with', () => {
  expect(collect(LINES.length + 2, 100, '\r\n').text).toBe(`\r\n${LINES}\r\n`);
  expect(() => collect(LINES.length + 1, 100, '\r\n')).toThrow(HeadersTooLong);
});

it('rejects an endless block as soon as it exceeds the limit', () => {
  const block = new HeaderBlock(10);
  block.start('');
  expect(() => block.take(Buffer.alloc(1_000_000, 'a'), 0)).toThrow(HeadersTooLong);
});

it('starts again', () => {
  const block = new HeaderBlock(100);
  expect([block.text, block.complete]).toEqual(['', false]);
  block.take(Buffer.from(BLOCK), 0);
  block.start('');
  expect([block.text, block.complete]).toEqual(['', false]);
});
