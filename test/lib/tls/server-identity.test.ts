import { X509Certificate } from 'node:crypto';
import { expect, it } from 'vitest';
import { checkServerIdentity } from '../../../src/lib/tls/tls-options.ts';
import { issueCertificate } from '../../support/certificates.ts';

it.each([
  ['::1', true],
  ['0:0:0:0:0:0:0:1', true],
  ['::2', false],
  ['127.0.0.1', true],
  ['127.0.0.2', false],
  ['gw.test', true],
  ['other.test', false],
])('checkServerIdentity of %s is %o on every Node.js', async (host, matches) => {
  const names = ['gw.test', '127.0.0.1', '::1'];
  const { certificatePem } = await issueCertificate({ subject: 'CN=gw.test', names });
  const certificate = new X509Certificate(certificatePem).toLegacyObject();
  const error = checkServerIdentity(host, certificate as Parameters<typeof checkServerIdentity>[1]);
  expect(error === undefined).toBe(matches);
});
