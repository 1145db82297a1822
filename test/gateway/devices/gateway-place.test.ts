import { expect, it } from 'vitest';
import { joinCode, joinOrigin } from '../../../src/gateway/devices/gateway-place.ts';
import { parseJoinCode } from '../../../src/management/join-code.ts';
import { issueCertificate } from '../../support/certificates.ts';

it.each([
  [null, 'https://api.gw.example.com:8443', false],
  ['https://api.gw.example.com', 'https://api.gw.example.com', false],
  ['https://gw.other.com', 'https://gw.other.com', true],
  ['http://gw.other.com', 'https://api.gw.example.com:8443', false],
])('with GATEWAY_API_URL=%s devices join at %s', (apiUrl, origin, isProxied) => {
  expect(joinOrigin(apiUrl, 'gw.example.com', 8443)).toEqual({ origin, isProxied });
});

it.each([
  ['none', false, { pin: 32, isPublic: false }],
  ['none', true, { pin: 32, isPublic: true }],
  ['public', false, { pin: 32, isPublic: true }],
  ['all', false, { pin: undefined, isPublic: true }],
] as const)(
  'with public certificates for %s, behind a proxy: %s, a code says whom to trust',
  async (publicNames, isProxied, { pin, isPublic }) => {
    const { certificatePem: caPem } = await issueCertificate({ subject: 'CN=ca', ca: true });
    const code = joinCode({ origin: 'https://api.gw.example.com', isProxied, caPem, publicNames }, 'a_b');
    const read = parseJoinCode(code);
    expect([read?.pin?.length, read?.isPublic, read?.secret]).toEqual([pin, isPublic, 'a_b']);
    expect(parseJoinCode(code.slice(0, -1))).toBeNull();
  },
);
