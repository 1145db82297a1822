import { expect, it } from 'vitest';
import { CODE_MINUTES, issueCode, OneTimeCodes } from '../../../src/lib/http/one-time-code.ts';

const START = 1_800_000_000_000;
const KEY = 'a secret of the device';

function setUp() {
  let now = START;
  const codes = new OneTimeCodes(() => now);
  const pass = (ms: number) => {
    now += ms;
  };
  return { codes, pass };
}

it('a one-time code works once, and only with the key it was made with', () => {
  const { codes } = setUp();
  const code = issueCode(KEY, START);
  expect(codes.use('another key', code)).toBeNull();
  expect(codes.use(KEY, code)).toBe(START);
  expect(codes.use(KEY, code)).toBeNull();
});

it('a one-time code expires', () => {
  const { codes, pass } = setUp();
  const code = issueCode(KEY, START);
  pass(CODE_MINUTES * 60_000 + 1);
  expect(codes.use(KEY, code)).toBeNull();
});

it('a one-time code of an earlier run is rejected, because it may have been used then', () => {
  const { codes } = setUp();
  expect(codes.use(KEY, issueCode(KEY, START - 1))).toBeNull();
});

it('a one-time code from the future is rejected', () => {
  const { codes } = setUp();
  expect(codes.use(KEY, issueCode(KEY, START + 3_600_000))).toBeNull();
});

it.each(['', 'AAAA', 'not a code', 'A'.repeat(51), 'A'.repeat(4_000)])('the text %j is no one-time code', (text) => {
  expect(setUp().codes.use(KEY, text)).toBeNull();
});

it('a changed one-time code is rejected, whichever byte differs', () => {
  const { codes } = setUp();
  const bytes = Buffer.from(issueCode(KEY, START), 'base64url');
  for (let at = 0; at < bytes.length; at++) {
    const changed = Buffer.from(bytes);
    changed[at] = (changed[at] ?? 0) ^ 1;
    expect(codes.use(KEY, changed.toString('base64url'))).toBeNull();
  }
});
