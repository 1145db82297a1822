import { expect, it } from 'vitest';
import { addressBytes, clientNetwork, hostPort } from '../../src/lib/ip-address.ts';

it.each([
  ['gateway.example', 'gateway.example:443'],
  ['192.0.2.1', '192.0.2.1:443'],
  ['2001:db8::1', '[2001:db8::1]:443'],
])('writes %s with a port', (host, text) => {
  expect(hostPort(host, 443)).toBe(text);
});

it.each([
  ['2001:db8:1:2::9', '2001:db8:1:2:ffff::1'],
  ['2001:db8::1', '2001:db8:0:0:5:6:7:8'],
  ['::ffff:192.0.2.1', '192.0.2.1'],
])('counts %s and %s as one client', (one, other) => {
  expect(clientNetwork(one)).toBe(clientNetwork(other));
});

it.each([
  ['2001:db8:1:2::1', '2001:db8:1:3::1'],
  ['192.0.2.1', '192.0.2.2'],
  ['not:an:address', 'nor:this'],
])('counts %s and %s as two clients', (one, other) => {
  expect(clientNetwork(one)).not.toBe(clientNetwork(other));
});

it.each([
  ['192.0.2.1', 'c0000201'],
  ['2001:db8::102', '20010db8000000000000000000000102'],
  ['::ffff:192.0.2.1', '00000000000000000000ffffc0000201'],
  ['example.com', undefined],
])('turns %s into bytes', (text, hex) => {
  expect(addressBytes(text)?.toString('hex')).toBe(hex);
});
