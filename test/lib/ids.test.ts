import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createIdSource, createToken, ksuidOf, parseToken } from '../../src/lib/ids.ts';

describe('identifiers', () => {
  it('have a prefix and 27 characters that start with the time, as in ngrok’s documentation', () => {
    // The reference shows a credential made at this second.
    const id = createIdSource(null, () => Date.UTC(2025, 8, 4, 10, 11, 15)).next('cr');
    expect(id).toMatch(/^cr_32EL[0-9A-Za-z]{23}$/);
  });

  it('always increase, even across restarts and when the clock jumps back', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 1_600_000_000, max: 1_900_000_000 }), { minLength: 2, maxLength: 50 }),
        fc.nat(49),
        (seconds, restartAt) => {
          let now = 0;
          const clock = () => now * 1000;
          let source = createIdSource(null, clock);
          let last = '';
          seconds.forEach((second, index) => {
            now = second;
            if (index === restartAt && last) source = createIdSource(ksuidOf(last), clock);
            const id = source.next('bot');
            expect(id > last).toBe(true);
            last = id;
          });
        },
      ),
    );
  });
});

describe('tokens', () => {
  it('contain the KSUID of the credential and a secret of 128 bits', () => {
    const id = createIdSource().next('ak');
    const { token, ksuid, secret } = createToken(id);
    expect(token).toBe(`${ksuidOf(id)}_${secret}`);
    expect(secret).toMatch(/^[1-9A-HJ-NP-Za-km-z]{21,22}$/);
    expect(parseToken(token)).toEqual({ ksuid, secret });
  });

  it.each(['', 'abc', '_', 'a_', '_b', 'a_b_c', 'a b_c', 'ak_!'])('parseToken rejects %j', (text) => {
    expect(parseToken(text)).toBeNull();
  });
});
