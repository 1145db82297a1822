import { expect, it } from 'vitest';
import { closest } from '../../src/lib/closest.ts';

it.each([
  ['tunels', 'tunnels'],
  ['lsit', 'list'],
  ['NGROK_AUTH_TOKEN', 'NGROK_AUTHTOKEN'],
  ['lss', 'ls'],
  ['export', null],
  ['', null],
])('the closest word to "%s" is %s', (word, meant) => {
  expect(closest(word, ['tunnels', 'list', 'ls', 'show', 'NGROK_AUTHTOKEN'])).toBe(meant);
});
