import { expect, it } from 'vitest';
import { parseAddress } from '../../../src/lib/network/ip-address.ts';
import { OwnAddresses } from '../../../src/lib/network/own-addresses.ts';

it('OwnAddresses knows what the interfaces have now, and reads them once a second at most', () => {
  let [now, reads] = [0, 0];
  let addresses = ['203.0.113.5', 'fe80::1', '2001:db8::5'];
  const own = new OwnAddresses(
    () => {
      reads++;
      const common = { netmask: '', mac: '', internal: false, cidr: null };
      return { eth0: addresses.map((address) => ({ ...common, family: 'IPv6', scopeid: 2, address })) };
    },
    () => now,
  );
  const has = (text: string) => {
    const address = parseAddress(text);
    return address !== null && own.has(address);
  };
  const spellings = ['203.0.113.5', '::ffff:203.0.113.5', '::ffff:cb00:7105', 'fe80::1%eth0', '2001:DB8:0::0005'];
  expect(spellings.filter((text) => !has(text))).toEqual([]);
  expect([has('203.0.113.6'), has('2001:db8::6')]).toEqual([false, false]);
  addresses = ['203.0.113.6'];
  now = 999;
  expect([has('203.0.113.5'), has('203.0.113.6'), reads]).toEqual([true, false, 1]);
  now = 1_000;
  expect([has('203.0.113.5'), has('203.0.113.6'), reads]).toEqual([false, true, 2]);
});
