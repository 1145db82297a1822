import { expect, it } from 'vitest';
import { QueryRate } from '../../../../src/gateway/certificates/challenges/challenge-dns.ts';

it.each([
  ['192.0.2.1', '192.0.2.77', '192.0.3.1'],
  ['2001:db8::1', '2001:db8:0:ff::8', '2001:db8:0:100::1'],
])('counts %s together with its neighbours', (address, neighbour, other) => {
  const rate = new QueryRate({ now: () => 0 });
  while (rate.allows(address));
  expect([rate.allows(neighbour), rate.allows(other)]).toEqual([false, true]);
});
