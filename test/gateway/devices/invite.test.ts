import { expect, it } from 'vitest';
import { joinCode } from '../../../src/gateway/devices/invite.ts';
import { parseJoinCode } from '../../../src/management/join-code.ts';
import { issueCertificate } from '../../support/certificates.ts';

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
