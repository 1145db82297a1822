import { describe, expect, it } from 'vitest';
import {
  gatewayDomains,
  isGatewayName,
  joinOrigin,
  sessionAddress,
} from '../../../src/gateway/endpoints/domain-names.ts';

const at = { host: '0.0.0.0', baseDomain: 'iot.example.org', sessionPort: null, httpsPort: 443 };
const onMachine = { ...at, host: '127.0.0.1', baseDomain: 'localhost', httpsPort: 8443 };

describe('the address for agents', () => {
  it('is the connect host, with the HTTPS port or the session port', () => {
    expect(sessionAddress(at)).toBe('connect.iot.example.org:443');
    expect(sessionAddress({ ...at, sessionPort: 9443 })).toBe('connect.iot.example.org:9443');
    expect(sessionAddress({ ...at, host: '192.0.2.7' })).toBe('connect.iot.example.org:443');
  });

  it('is the listen address for a base domain below localhost', () => {
    expect(sessionAddress(onMachine)).toBe('127.0.0.1:8443');
    expect(sessionAddress({ ...onMachine, baseDomain: 'site.localhost', host: '::1' })).toBe('[::1]:8443');
    expect(sessionAddress({ ...onMachine, host: '::' })).toBe('connect.localhost:8443');
  });

  it('is the listen address when a session port is configured', () => {
    expect(sessionAddress({ ...at, host: '192.0.2.7', sessionPort: 9443 })).toBe('192.0.2.7:9443');
  });
});

it.each([
  [null, 'https://api.gw.example.com:8443', false],
  ['https://api.gw.example.com', 'https://api.gw.example.com', false],
  ['https://gw.other.com', 'https://gw.other.com', true],
  ['http://gw.other.com', 'https://api.gw.example.com:8443', false],
])('with GATEWAY_API_URL=%s devices join at %s', (apiUrl, origin, isProxied) => {
  expect(joinOrigin(apiUrl, 'gw.example.com', 8443)).toEqual({ origin, isProxied });
});

it('names of ports are the gateway’s own in GATEWAY_HTTPS_PORTS alone', () => {
  const range = { first: 21_000, last: 21_999 };
  const ofGateway = (ip: string | null, ports: typeof range | null) =>
    [8080, 20_999, 21_000, 21_999, 22_000].filter((port) =>
      isGatewayName(`port-${port}.gw.example.com`, gatewayDomains('gw.example.com', ip, ports)),
    );
  expect(ofGateway('192.0.2.7', range)).toEqual([21_000, 21_999]);
  expect(ofGateway('192.0.2.7', null)).toEqual([]);
  expect(ofGateway(null, range)).toEqual([]);
});
