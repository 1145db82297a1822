import { expect, it } from 'vitest';
import { proxyHeader } from '../../../../src/gateway/edge/connections/proxy-protocol.ts';

const IPV4 = { clientIp: '203.0.113.7', clientPort: 4567, serverIp: '192.0.2.1', serverPort: 443 };
const IPV6 = { clientIp: '2001:db8::7', clientPort: 4567, serverIp: '64:ff9b::192.0.2.1', serverPort: 443 };
const UNKNOWN = { ...IPV4, clientIp: '' };

it('writes version 1 as a line', () => {
  expect(String(proxyHeader(1, IPV4))).toBe('PROXY TCP4 203.0.113.7 192.0.2.1 4567 443\r\n');
  expect(String(proxyHeader(1, IPV6))).toBe('PROXY TCP6 2001:db8::7 64:ff9b::192.0.2.1 4567 443\r\n');
  expect(String(proxyHeader(1, UNKNOWN))).toBe('PROXY UNKNOWN\r\n');
});

it('writes version 2 in binary, each family with its length', () => {
  const signature = '0d0a0d0a000d0a515549540a';
  expect(proxyHeader(2, IPV4).toString('hex')).toBe(`${signature}2111000ccb007107c000020111d701bb`);
  expect(proxyHeader(2, IPV6).toString('hex')).toBe(
    `${signature}2121002420010db80000000000000000000000070064ff9b0000000000000000c000020111d701bb`,
  );
  expect(proxyHeader(2, UNKNOWN).toString('hex')).toBe(`${signature}21000000`);
});
