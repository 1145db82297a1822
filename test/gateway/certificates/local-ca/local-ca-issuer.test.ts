import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { LocalCaIssuer } from '../../../../src/gateway/certificates/choose-issuer.ts';
import { openLocalCa } from '../../../../src/gateway/certificates/local-ca/local-ca.ts';
import { issueApiKey } from '../../../../src/gateway/store/tokens.ts';
import { ManagementClient } from '../../../../src/management/client.ts';
import { startTestGateway } from '../../../support/gateway.ts';
import { silentLog } from '../../../support/silent-log.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';

describe('the local CA as issuer', () => {
  let folder: string;
  beforeEach(() => {
    folder = temporaryFolder();
  });

  const wanted = { domain: '*.site.example.com', privateKeyType: 'ecdsa' } as const;
  const signal = new AbortController().signal;

  it.each([
    ['rsa', { modulusLength: 4096 }],
    ['ecdsa', { namedCurve: 'prime256v1' }],
  ] as const)(
    'issues a certificate with an %s key, and does not block the process',
    async (privateKeyType, details) => {
      const ca = await openLocalCa(folder, silentLog);
      const issuer = new LocalCaIssuer(ca);
      await issuer.issue(wanted, signal);
      let ticks = 0;
      const ticking = setInterval(() => {
        ticks += 1;
      }, 1);
      const issued = await issuer.issue({ ...wanted, privateKeyType }, signal);
      clearInterval(ticking);
      // The process goes on while it generates a key, which takes seconds.
      if (privateKeyType === 'rsa') expect(ticks).toBeGreaterThan(10);
      const certificate = new X509Certificate(issued.certificatePem);
      const key = createPrivateKey(issued.privateKeyPem);
      expect(key.asymmetricKeyDetails).toMatchObject(details);
      expect(certificate.checkPrivateKey(key)).toBe(true);
      expect(certificate.verify(new X509Certificate(ca.caPem).publicKey)).toBe(true);
      expect(certificate.checkHost('cam.site.example.com')).toBeDefined();
    },
  );

  it('issues a new certificate every time, and stores no key', async () => {
    const issuer = new LocalCaIssuer(await openLocalCa(folder, silentLog));
    const [first, second] = [await issuer.issue(wanted, signal), await issuer.issue(wanted, signal)];
    expect(first.privateKeyPem).not.toBe(second.privateKeyPem);
    expect((await readdir(folder)).sort()).toEqual(['ca-key.pem', 'ca.pem']);
  });

  it('generates no key for a cancelled order', async () => {
    const issuer = new LocalCaIssuer(await openLocalCa(folder, silentLog));
    await expect(issuer.issue(wanted, AbortSignal.abort(new Error('detached')))).rejects.toThrow('detached');
    await expect(issuer.issue(wanted, signal)).resolves.toBeDefined();
  });
});

it('the API shows a certificate from its policy to its removal', async () => {
  const gateway = await startTestGateway();
  onTestFinished(() => gateway.close());
  const { token } = await gateway.store.database.write(() => issueApiKey(gateway.store, {}));
  const client = new ManagementClient({ baseUrl: gateway.apiUrl, apiKey: token, ca: gateway.sessionCa });
  const { reservedDomains, tlsCertificates } = client;

  const policy = { authority: 'letsencrypt', private_key_type: 'ecdsa' } as const;
  const created = await reservedDomains.create({ domain: '*.site.example.com', certificate_management_policy: policy });
  expect(created).toMatchObject({
    certificate: null,
    certificate_management_policy: policy,
    certificate_management_status: {
      renews_at: null,
      provisioning_job: { error_code: null, msg: 'Managed certificate provisioning in progress.', retries_at: null },
    },
  });

  /** The domain, once its certificate has changed. */
  const issued = async (before: string | null) => {
    await expect.poll(async () => (await reservedDomains.get(created.id)).certificate?.id ?? before).not.toBe(before);
    return reservedDomains.get(created.id);
  };
  const first = await issued(null);
  const certificate = await tlsCertificates.get(String(first.certificate?.id));
  expect(certificate).toMatchObject({
    uri: first.certificate?.uri,
    private_key_type: 'ecdsa',
    subject_alternative_names: { dns_names: ['*.site.example.com'] },
  });
  const status = first.certificate_management_status;
  expect(status?.provisioning_job).toBeNull();
  const [start, end] = [Date.parse(certificate.not_before), Date.parse(certificate.not_after)];
  const twoThirds = new Date(start + ((end - start) * 2) / 3).toISOString().slice(0, 10);
  expect(status?.renews_at).toBe(`${twoThirds}T00:00:00Z`);

  const asked = await reservedDomains.update(created.id, {
    certificate_management_policy: { ...policy, private_key_type: 'rsa' },
  });
  expect(asked).toMatchObject({
    certificate: first.certificate,
    certificate_management_status: { provisioning_job: { error_code: null } },
  });
  const second = await issued(certificate.id);
  expect((await tlsCertificates.get(String(second.certificate?.id))).private_key_type).toBe('rsa');
  await expect(tlsCertificates.get(certificate.id)).rejects.toMatchObject({ isNotFound: true });

  await expect(reservedDomains.detachCertificate(created.id)).rejects.toMatchObject({ code: 'ERR_NGROK_436' });
  await reservedDomains.detachCertificateManagementPolicy(created.id);
  expect(await reservedDomains.get(created.id)).toMatchObject({
    certificate: null,
    certificate_management_policy: null,
    certificate_management_status: null,
  });
  expect((await tlsCertificates.list()).items).toEqual([]);
});
