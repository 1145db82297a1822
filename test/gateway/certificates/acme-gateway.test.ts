import { X509Certificate } from 'node:crypto';
import { request } from 'node:http';
import { text } from 'node:stream/consumers';
import { connect } from 'node:tls';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import type { GatewayOptions } from '../../../src/gateway/context/gateway-options.ts';
import { AcmeServer, NO_ACME_SERVER } from '../../support/acme-server.ts';
import { startTestGateway, type TestGateway } from '../../support/gateway.ts';
import { GatewayClient } from '../../support/gateway-client.ts';
import { NameServer } from '../../support/name-server.ts';
import { NO_POSTGRES, PostgresServer } from '../../support/postgres-server.ts';
import { unless } from '../../support/requirements.ts';

/** Loopback addresses of this process only: CAs validate at fixed ports. */
const net = `127.78.${process.pid % 250}`;
const [RESOLVER, GATEWAY, CA, SECOND_GATEWAY, OTHER_NODE] = [1, 2, 3, 4, 5].map((host) => `${net}.${host}`) as [
  string,
  string,
  string,
  string,
  string,
];

const HOUR = 3_600_000;
const ECDSA = { certificate_management_policy: { authority: 'letsencrypt', private_key_type: 'ecdsa' } };
const RSA = { certificate_management_policy: { authority: 'letsencrypt', private_key_type: 'rsa' } };
/** Enough for validations, paused polls and 4096-bit keys. */
const POLLING = { timeout: 60_000, interval: 100 };

interface Status {
  renews_at: string | null;
  provisioning_job: { error_code: string | null; msg: string; retries_at: string | null } | null;
}

describe('a gateway with an ACME CA', { timeout: 180_000, ...unless(NO_ACME_SERVER) }, () => {
  let resolver: NameServer;
  let ca: AcmeServer;
  let gateway: TestGateway;
  let client: GatewayClient;
  /** How far the gateway's wall clock is ahead. */
  let ahead = 0;

  async function start(address: string, options: Partial<GatewayOptions> = {}): Promise<TestGateway> {
    const account = { directoryUrl: ca.directoryUrl, contactEmail: null, externalAccountBinding: null };
    return startTestGateway({
      domain: 'gateway.test',
      host: address,
      httpPort: 80,
      httpsPort: 443,
      acme: { ...account, trust: ca.root, resolvers: [RESOLVER], ownNames: 'none' },
      challengeDns: { host: address, port: 0, nameServer: 'connect.gateway.test' },
      ...options,
    });
  }

  beforeAll(async () => {
    const realNow = Date.now;
    vi.spyOn(Date, 'now').mockImplementation(() => realNow() + ahead);
    resolver = await NameServer.start(RESOLVER, 53);
    ca = await AcmeServer.start(CA, RESOLVER);
    gateway = await start(GATEWAY);
    client = await GatewayClient.of(gateway, GATEWAY);
    resolver.delegate('acme.gateway.test', GATEWAY, Number(gateway.dnsPort));
  }, 60_000);
  afterAll(async () => {
    await gateway?.close();
    await Promise.all([ca?.stop(), resolver?.stop()]);
    vi.restoreAllMocks();
  });
  afterEach(() => {
    ahead = 0;
  });

  /** Reserves a name, and points its records to the targets from the API. */
  async function reserve(domain: string, policy: object, { of = client, address = GATEWAY } = {}): Promise<string> {
    const { body, status } = await of.call('POST', '/reserved_domains', { domain });
    expect(status).toBe(201);
    resolver.cname(domain, String(body.cname_target));
    resolver.add({ type: 'A', name: String(body.cname_target), data: address });
    const challenge = body.acme_challenge_cname_target;
    if (challenge !== null) resolver.cname(`_acme-challenge.${domain.slice(2)}`, String(challenge));
    await of.call('PATCH', `/reserved_domains/${body.id}`, policy);
    return String(body.id);
  }
  const read = async (id: string, of = client) => {
    const { body } = await of.call('GET', `/reserved_domains/${id}`);
    return { certificate: body.certificate, ...(body.certificate_management_status as Status) };
  };
  const issued = async (id: string, of = client) => {
    await expect.poll(async () => (await read(id, of)).provisioning_job, POLLING).toBeNull();
    return read(id, of);
  };
  const isFromAcmeCa = (certificate: X509Certificate) => !certificate.verify(localCaKey());
  const localCaKey = () => new X509Certificate(gateway.sessionCa).publicKey;

  it('serves the certificate of a policy, which clients of the CA trust', async () => {
    expect(isFromAcmeCa(await client.presented('plain.example.test'))).toBe(false);
    const { body } = await client.call('POST', '/reserved_domains', { domain: 'plain.example.test', ...ECDSA });
    expect(body).toMatchObject({
      certificate: null,
      certificate_management_status: { renews_at: null, provisioning_job: { error_code: null, retries_at: null } },
    });
    // The record does not exist yet.
    const id = String(body.id);
    await expect.poll(async () => (await read(id)).provisioning_job?.error_code, POLLING).toBe('DNS_ERROR');
    const { provisioning_job: job } = await read(id);
    expect(job?.msg).toBe(
      `The DNS record plain.example.test must be a CNAME to ${body.cname_target}. Found: no such record.`,
    );
    expect(Date.parse(String(job?.retries_at))).toBeGreaterThan(Date.now());
    expect(isFromAcmeCa(await client.presented('plain.example.test'))).toBe(false);

    resolver.cname('plain.example.test', String(body.cname_target));
    resolver.add({ type: 'A', name: String(body.cname_target), data: GATEWAY });
    await client.call('PATCH', `/reserved_domains/${id}`, ECDSA);
    const { certificate, renews_at } = await issued(id);
    expect(certificate).not.toBeNull();
    expect(Date.parse(String(renews_at))).toBeGreaterThan(Date.now());
    const options = { host: GATEWAY, port: 443, servername: 'plain.example.test', ca: ca.root };
    await new Promise<void>((resolve, reject) => {
      const socket = connect(options, () => {
        socket.destroy();
        resolve();
      }).on('error', reject);
    });
  });

  it('validates a wildcard with its own DNS server and serves the names below', async () => {
    const id = await reserve('*.site.example.test', RSA);
    await issued(id);
    const certificate = await client.presented('door.site.example.test');
    expect(certificate.subjectAltName).toBe('DNS:*.site.example.test');
    expect(certificate.publicKey.asymmetricKeyDetails?.modulusLength).toBe(4096);
    expect(isFromAcmeCa(certificate)).toBe(true);
  });

  /** Two gateways of a cluster: the first one orders certificates, names and challenges lead to the other. */
  async function cluster(options: Partial<GatewayOptions> = {}) {
    const database = await PostgresServer.start();
    onTestFinished(() => database.end());
    const node = async (address: string) => {
      const shared = { databaseUrl: database.url(), nodeAddress: `${address}:443` };
      const encryptionKey = Buffer.alloc(32, 7).toString('base64');
      const started = await start(address, { ...shared, encryptionKey, ...options });
      onTestFinished(() => started.close());
      return started;
    };
    const [orders, answers] = [await node(SECOND_GATEWAY), await node(OTHER_NODE)];
    return { orders, answers, of: await GatewayClient.of(answers, OTHER_NODE) };
  }

  it(
    'of a cluster has its CA answered by any gateway, and all serve the certificates',
    unless(NO_POSTGRES),
    async () => {
      const { orders, answers, of } = await cluster();
      resolver.delegate('acme.gateway.test', OTHER_NODE, Number(answers.dnsPort));
      onTestFinished(() => resolver.delegate('acme.gateway.test', GATEWAY, Number(gateway.dnsPort)));
      for (const domain of ['plain.cluster.test', '*.wild.cluster.test'])
        await issued(await reserve(domain, ECDSA, { of, address: OTHER_NODE }), of);
      for (const each of [of, await GatewayClient.of(orders, SECOND_GATEWAY)]) {
        for (const name of ['plain.cluster.test', 'door.wild.cluster.test'])
          await expect.poll(async () => isFromAcmeCa(await each.presented(name)), POLLING).toBe(true);
      }
    },
  );

  it('of a cluster has TLS-ALPN validations answered by any gateway', unless(NO_POSTGRES), async () => {
    const { of } = await cluster({ httpPort: 0, challengeDns: null });
    await issued(await reserve('alpn.cluster.test', ECDSA, { of, address: OTHER_NODE }), of);
    await expect.poll(async () => isFromAcmeCa(await of.presented('alpn.cluster.test')), POLLING).toBe(true);
  });

  it('validates a name with TLS-ALPN when port 80 is unreachable', async () => {
    const second = await start(SECOND_GATEWAY, { httpPort: 0, challengeDns: null });
    onTestFinished(() => second.close());
    const of = await GatewayClient.of(second, SECOND_GATEWAY);
    const id = await reserve('tls.example.test', ECDSA, { of, address: SECOND_GATEWAY });
    await issued(id, of);
    const certificate = await of.presented('tls.example.test');
    expect(certificate.verify(new X509Certificate(second.sessionCa).publicKey)).toBe(false);
    expect(certificate.checkHost('tls.example.test')).toBeDefined();
  });

  it('renews at half of a short lifetime; the old certificate serves until then', async () => {
    const id = await reserve('renewed.example.test', ECDSA);
    const { renews_at } = await issued(id);
    const first = await client.presented('renewed.example.test');
    const lifetime = Date.parse(first.validTo) - Date.parse(first.validFrom);
    const half = Date.parse(first.validFrom) + lifetime / 2;
    expect(Math.abs(Date.parse(String(renews_at)) - half)).toBeLessThanOrEqual(1000);

    ahead = half - Date.now() - HOUR;
    await client.call('PATCH', `/reserved_domains/${id}`, { description: 'wakes the renewal' });
    expect((await read(id)).provisioning_job).toBeNull();
    expect((await client.presented('renewed.example.test')).serialNumber).toBe(first.serialNumber);

    ahead += HOUR + 2000;
    await client.call('PATCH', `/reserved_domains/${id}`, { description: 'wakes it again' });
    await expect
      .poll(async () => (await client.presented('renewed.example.test')).serialNumber, POLLING)
      .not.toBe(first.serialNumber);
    expect(isFromAcmeCa(await client.presented('renewed.example.test'))).toBe(true);
  });

  const failed = async (id: string, code: string) => {
    await expect.poll(async () => (await read(id)).provisioning_job?.error_code, POLLING).toBe(code);
    return (await read(id)).provisioning_job;
  };
  /** Advances the clock to the next attempt. */
  const retry = async (id: string) => {
    const { provisioning_job: job } = await read(id);
    ahead += Date.parse(String(job?.retries_at)) + 1000 - Date.now();
    await client.call('PATCH', `/reserved_domains/${id}`, { description: 'wakes the renewal' });
  };

  it('succeeds on its own after a wrong CNAME is corrected', async () => {
    const challenge = '_acme-challenge.corrected.example.test';
    const id = await reserve('*.corrected.example.test', {});
    const { body } = await client.call('GET', `/reserved_domains/${id}`);
    resolver.remove(challenge);
    resolver.cname(challenge, 'elsewhere.test');
    await client.call('PATCH', `/reserved_domains/${id}`, ECDSA);
    expect((await failed(id, 'DNS_ERROR'))?.msg).toBe(
      `The DNS record ${challenge} must be a CNAME to ${body.acme_challenge_cname_target}. ` +
        'Found: a CNAME to elsewhere.test.',
    );
    resolver.remove(challenge);
    resolver.cname(challenge, String(body.acme_challenge_cname_target));
    await retry(id);
    await issued(id);
    expect(isFromAcmeCa(await client.presented('door.corrected.example.test'))).toBe(true);
  });

  it('reports an unreachable CA, and succeeds once it is reachable', async () => {
    await ca.pause();
    let id: string;
    try {
      id = await reserve('waiting.example.test', ECDSA);
      expect((await failed(id, 'INTERNAL_ERROR'))?.msg).toContain(`is unreachable: ${CA}`);
    } finally {
      await ca.resume();
    }
    expect((await read(id)).certificate).toBeNull();
    await retry(id);
    await issued(id);
    expect(isFromAcmeCa(await client.presented('waiting.example.test'))).toBe(true);
  });

  it('serves the local CA’s certificate after the policy is detached', async () => {
    const id = await reserve('detached.example.test', ECDSA);
    await issued(id);
    expect(isFromAcmeCa(await client.presented('detached.example.test'))).toBe(true);
    await client.call('DELETE', `/reserved_domains/${id}/certificate_management_policy`);
    expect(isFromAcmeCa(await client.presented('detached.example.test'))).toBe(false);
  });

  it('forwards challenges of others to the endpoint of the name', async () => {
    const answer = await new Promise<{ status: number | undefined; body: string }>((resolve, reject) => {
      const path = '/.well-known/acme-challenge/of-somebody-else';
      request({ host: GATEWAY, port: 80, path, headers: { host: 'nobody.example.test' }, agent: false })
        .on('response', async (res) => resolve({ status: res.statusCode, body: await text(res) }))
        .on('error', reject)
        .end();
    });
    expect(answer.status).toBe(404);
  });
});
