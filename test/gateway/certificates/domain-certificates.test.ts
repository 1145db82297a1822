import { expect, it } from 'vitest';
import { DomainCertificates } from '../../../src/gateway/certificates/domain-certificates.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { madeUpRsa, pemOf, spkiOf } from '../../support/costly-keys.ts';
import { recordingLog } from '../../support/silent-log.ts';

it('a stored certificate with an unusual key is not served, and reported once', async () => {
  const key = madeUpRsa(8192);
  const { certificatePem } = await issueCertificate({ subject: 'CN=a', publicKey: spkiOf(key) });
  const { log, lines } = recordingLog();
  const store = {
    database: { untilCommit: <T>(read: (host: string) => T) => read },
    ownDomains: { certificateFor: () => null },
    reservedDomains: { certificateFor: () => 'cert_1' },
    tlsCertificates: { keyPair: () => ({ certificatePem, privateKeyPem: pemOf(key) }) },
  };
  const certificates = new DomainCertificates(store as never, null, log);
  for (let times = 0; times < 2; times++) expect(certificates.pairFor('a.example.com')).toBeNull();
  expect(lines).toMatchObject([
    {
      msg: 'certificate unusable; serving one of the local CA',
      certificate: 'cert_1',
      err: { message: expect.stringContaining('the certificate has an RSA key with 8192 bits') },
    },
  ]);
});
