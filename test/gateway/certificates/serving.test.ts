import { createHash, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { issueCertificate } from '../../support/certificates.ts';
import { agentSession, startTestGateway, type TestGateway } from '../../support/gateway.ts';
import { GatewayClient } from '../../support/gateway-client.ts';

let gateway: TestGateway;
let client: GatewayClient;
beforeAll(async () => {
  gateway = await startTestGateway();
  client = await GatewayClient.of(gateway);
});
afterAll(() => gateway.close());

async function create(path: string, body: object): Promise<string> {
  const answer = await client.call('POST', path, body);
  expect(answer.status).toBe(201);
  return String(answer.body.id);
}

async function upload(name: string): Promise<{ id: string; fingerprint: string }> {
  const { certificatePem, privateKeyPem } = await issueCertificate({ subject: `CN=${name}`, names: [name] });
  const id = await create('/tls_certificates', { certificate_pem: certificatePem, private_key_pem: privateKeyPem });
  return { id, fingerprint: new X509Certificate(certificatePem).fingerprint256 };
}

const presented = async (name: string) => (await client.presented(name)).fingerprint256;
const isFromLocalCa = async (name: string) =>
  (await client.presented(name)).verify(new X509Certificate(gateway.sessionCa).publicKey);

describe('an uploaded certificate', () => {
  it('serves its domain immediately, then its replacement, then the local CA’s', async () => {
    const [first, second] = [await upload('cam.example.com'), await upload('cam.example.com')];
    expect(await isFromLocalCa('cam.example.com')).toBe(true);
    const id = await create('/reserved_domains', { domain: 'cam.example.com', certificate_id: first.id });
    expect(await presented('cam.example.com')).toBe(first.fingerprint);
    expect(await presented('CAM.example.com')).toBe(first.fingerprint);
    expect(await isFromLocalCa('other.example.com')).toBe(true);
    await client.call('PATCH', `/reserved_domains/${id}`, { certificate_id: second.id });
    expect(await presented('cam.example.com')).toBe(second.fingerprint);
    expect((await client.call('DELETE', `/reserved_domains/${id}/certificate`)).status).toBe(204);
    expect(await isFromLocalCa('cam.example.com')).toBe(true);
  });

  it('of a wildcard serves the names below without their own certificate', async () => {
    const [wildcard, own] = [await upload('*.site.example.com'), await upload('door.site.example.com')];
    await create('/reserved_domains', { domain: '*.site.example.com', certificate_id: wildcard.id });
    const door = await create('/reserved_domains', { domain: 'door.site.example.com' });
    expect(await presented('window.site.example.com')).toBe(wildcard.fingerprint);
    expect(await presented('door.site.example.com')).toBe(wildcard.fingerprint);
    await client.call('PATCH', `/reserved_domains/${door}`, { certificate_id: own.id });
    expect(await presented('door.site.example.com')).toBe(own.fingerprint);
    expect(await presented('window.site.example.com')).toBe(wildcard.fingerprint);
  });

  it('survives a restart; with another encryption key the local CA’s serves', async () => {
    const { dataDir } = gateway;
    const { id, fingerprint } = await upload('kept.example.com');
    await create('/reserved_domains', { domain: 'kept.example.com', certificate_id: id });
    const again = async (encryptionKey: string | null) => {
      const second = await startTestGateway({ dataDir, encryptionKey });
      try {
        return (await (await GatewayClient.of(second)).presented('kept.example.com')).fingerprint256;
      } finally {
        await second.close();
      }
    };
    expect(await again(null)).toBe(fingerprint);
    expect(await again(createHash('sha256').update('another').digest('base64'))).not.toBe(fingerprint);
  });
});

describe('a wildcard endpoint without its own certificate', () => {
  it('uses one certificate of the local CA for all names', async () => {
    await create('/reserved_domains', { domain: '*.many.example.com' });
    // Another gateway on the same folder has replaced the authtoken.
    const session = await agentSession({ ...gateway, authtoken: await gateway.issueAuthtoken() }).connect();
    const listener = await session.httpEndpoint().domain('*.many.example.com').listen(false);
    const certificate = await client.presented('one.many.example.com');
    expect(certificate.checkHost('one.many.example.com')).toBeDefined();
    expect(await isFromLocalCa('one.many.example.com')).toBe(true);
    expect(await presented('two.many.example.com')).toBe(certificate.fingerprint256);
    await session.httpEndpoint().domain('own.many.example.com').listen(false);
    expect(await presented('own.many.example.com')).toBe(certificate.fingerprint256);
    await session.httpEndpoint().domain('very.deep.many.example.com').listen(false);
    expect((await client.presented('very.deep.many.example.com')).subjectAltName).toBe(
      'DNS:very.deep.many.example.com',
    );
    // While it is offline, clients still get the error page.
    await listener.close();
    expect(await presented('two.many.example.com')).toBe(certificate.fingerprint256);
  });
});

describe('a policy, with the gateway’s own CA', () => {
  it.each([
    ['rsa', { modulusLength: 4096, publicExponent: 65537n }],
    ['ecdsa', { namedCurve: 'prime256v1' }],
  ])(
    'issues a certificate with an %s key and serves it',
    async (private_key_type, details) => {
      const domain = `${private_key_type}.example.com`;
      const certificate_management_policy = { authority: 'letsencrypt', private_key_type };
      const id = await create('/reserved_domains', { domain, certificate_management_policy });
      const status = async () => (await client.call('GET', `/reserved_domains/${id}`)).body;
      await expect.poll(async () => (await status()).certificate, { timeout: 60_000 }).not.toBeNull();
      expect((await status()).certificate_management_status).toMatchObject({ provisioning_job: null });
      const certificate = await client.presented(domain);
      expect(certificate.subjectAltName).toBe(`DNS:${domain}`);
      expect(certificate.publicKey.asymmetricKeyDetails).toEqual(details);
      expect(await isFromLocalCa(domain)).toBe(true);
      // It is the certificate that the API shows.
      const { id: certificateId } = (await status()).certificate as { id: string };
      const { body } = await client.call('GET', `/tls_certificates/${certificateId}`);
      expect(BigInt(`0x${body.serial_number}`)).toBe(BigInt(`0x${certificate.serialNumber}`));
      await client.call('DELETE', `/reserved_domains/${id}/certificate_management_policy`);
      expect((await client.presented(domain)).serialNumber).not.toBe(certificate.serialNumber);
    },
    70_000,
  );
});

describe('the protocols that a client offers', () => {
  const handshake = async (ALPNProtocols: string[]) => {
    const options = { host: '127.0.0.1', port: gateway.httpsPort, servername: 'elsewhere.example.net', ALPNProtocols };
    const socket = connect({ ...options, rejectUnauthorized: false });
    try {
      await once(socket, 'secureConnect');
      return socket.alpnProtocol;
    } finally {
      socket.destroy();
    }
  };

  it('select HTTP/1.1 when it is offered', async () => {
    expect(await handshake(['h2', 'http/1.1'])).toBe('http/1.1');
    expect(await handshake(['acme-tls/1', 'http/1.1'])).toBe('http/1.1');
  });

  it('close the connection when no offered protocol is supported, or a validation has no order', async () => {
    await expect(handshake(['h2'])).rejects.toThrow(/no application protocol/i);
    await expect(handshake(['acme-tls/1'])).rejects.toThrow(/no application protocol/i);
  });
});
