import { expect, it } from 'vitest';
import { ClientShares } from '../../../src/lib/network/client-shares.ts';

it.each([
  ['an IPv4 address', ['192.0.2.1', '192.0.2.2', '::ffff:192.0.2.2'], '198.51.100.1', ['b', 'c']],
  ['the /56 of an IPv6 address', ['2001:db8:0:1::1', '2001:db8:0:ff::2', '2001:db8:0:100::1'], '::1', ['a', 'b']],
  ['nobody, when the client has one less', ['192.0.2.1', '192.0.2.1', '192.0.2.2'], '192.0.2.2', []],
])('a client gets something of %s', (_whose, addresses, client, share) => {
  const shares = new ClientShares<string>();
  addresses.forEach((address, at) => {
    shares.add(address, 'abc'.charAt(at));
  });
  expect([...shares.excessFor(client)]).toEqual(share);
});

it('what was given back counts no longer', () => {
  const shares = new ClientShares<string>();
  for (const item of ['a', 'b']) shares.add('192.0.2.1', item);
  shares.delete('192.0.2.1', 'a');
  expect([...shares.largest]).toEqual(['b']);
  expect([...shares.excessFor('192.0.2.2')]).toEqual([]);
});
