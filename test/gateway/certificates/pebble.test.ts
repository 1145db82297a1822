import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { AcmeAccountKey, AcmeCa } from '../../../src/gateway/certificates/acme/acme-account.ts';
import { Conversation } from '../../../src/gateway/certificates/acme/acme-conversation.ts';
import { AcmeIssuer } from '../../../src/gateway/certificates/acme/acme-issuer.ts';
import { AcmeRequests } from '../../../src/gateway/certificates/acme/acme-requests.ts';
import {
  changeAccountKey,
  nextAccountKey,
  revokeCertificate,
} from '../../../src/gateway/certificates/certificate-errands.ts';
import {
  answerTlsAlpn,
  HttpChallenges,
  TlsAlpnChallenges,
  TxtChallenges,
} from '../../../src/gateway/certificates/challenges/challenges.ts';
import { makePrivateKey } from '../../../src/gateway/certificates/issuing/certificate-issuer.ts';
import type { GatewayOptions } from '../../../src/gateway/context/gateway-options.ts';
import { joinCode } from '../../../src/gateway/devices/invite.ts';
import { systemClock } from '../../../src/lib/time/clock.ts';
import { AgentProcess } from '../../support/agent-process.ts';
import { CONNECTORS } from '../../support/connectors.ts';
import { enrolmentKey } from '../../support/enrolment.ts';
import { freePorts } from '../../support/free-ports.ts';
import { agentSession, makeDataDir, startTestGateway, type TestGateway } from '../../support/gateway.ts';
import { GatewayClient } from '../../support/gateway-client.ts';
import { NameServer } from '../../support/name-server.ts';
import { NO_PEBBLE, Pebble } from '../../support/pebble.ts';
import { NO_POSTGRES, PostgresServer } from '../../support/postgres-server.ts';
import { serverInFront } from '../../support/public-names.ts';
import { unless } from '../../support/requirements.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

const ECDSA = { certificate_management_policy: { authority: 'letsencrypt', private_key_type: 'ecdsa' } };
const POLLING = { timeout: 60_000, interval: 100 };
const [HOUR, DAY] = [3_600_000, 86_400_000];

interface Status {
  renews_at: string | null;
  provisioning_job: { error_code: string | null; msg: string } | null;
}

/** Clients that connect one after the other, and trust a root only: what each was shown, or why it refused. */
async function newClients({ httpsPort: port }: TestGateway, servername: string, ca: string) {
  const shown: string[] = [];
  const count = 2;
  let isStopped = false;
  const once = () =>
    new Promise<void>((resolve) => {
      const socket = connect({ host: '127.0.0.1', port, servername, ca }, () => {
        shown.push(String(socket.getPeerX509Certificate()?.serialNumber));
        socket.destroy();
      });
      socket.on('error', ({ message }) => shown.push(message)).on('close', () => resolve());
    });
  const loops = Array.from({ length: count }, async () => {
    while (!isStopped) await once();
  });
  const stop = async () => {
    isStopped = true;
    await Promise.all(loops);
  };
  onTestFinished(stop);
  await until(() => shown.length > 0, 'a client');
  return { shown, count, stop };
}

/** Revokes a certificate with its key (RFC 8555, section 7.6). */
async function revokeAtCa({ directoryUrl, serverCa }: Pebble, certificatePem: string, privateKeyPem: string) {
  const requests = new AcmeRequests(new Conversation(serverCa, new AbortController().signal), directoryUrl);
  const { revokeCert } = await requests.directory();
  const certificate = new X509Certificate(certificatePem).raw.toString('base64url');
  await requests.post(String(revokeCert), { certificate, reason: 4 }, createPrivateKey(privateKeyPem), null);
}

/** A stand-in for encryption. */
const box = { seal: (plain: string | Uint8Array) => Buffer.from(plain), open: (sealed: Buffer) => String(sealed) };
const accountAt = ({ directoryUrl }: Pebble) => ({ directoryUrl, contactEmail: null, externalAccountBinding: null });

describe('a gateway with a strict ACME CA', { timeout: 120_000, ...unless(NO_PEBBLE) }, () => {
  let resolver: NameServer;
  let ports: { httpsPort: number; httpPort: number };
  let ahead = 0;

  beforeEach(async () => {
    resolver = await NameServer.startWithTcp();
    const { first } = await freePorts(3);
    ports = { httpsPort: first, httpPort: first + 1 };
    const realNow = Date.now;
    vi.spyOn(Date, 'now').mockImplementation(() => realNow() + ahead);
  });
  afterEach(async () => {
    ahead = 0;
    vi.restoreAllMocks();
    await resolver.stop();
  });

  async function pebble(options: Partial<Parameters<typeof Pebble.start>[0]> = {}): Promise<Pebble> {
    const started = await Pebble.start({ resolver: resolver.address, ...ports, ...options });
    onTestFinished(() => started.stop());
    return started;
  }

  async function start(
    ca: Pebble,
    acme: Partial<NonNullable<GatewayOptions['acme']>> = {},
    options: Partial<GatewayOptions> = {},
  ): Promise<{ gateway: TestGateway; client: GatewayClient }> {
    const account = accountAt(ca);
    const gateway = await startTestGateway({
      domain: 'gateway.test',
      ...ports,
      acme: { ...account, trust: ca.serverCa, resolvers: [resolver.address], ownNames: 'none', ...acme },
      ...options,
    });
    const client = await GatewayClient.of(gateway, '127.0.0.1');
    onTestFinished(() => gateway.close());
    return { gateway, client };
  }

  async function reserve(client: GatewayClient, domain: string): Promise<string> {
    const { body } = await client.call('POST', '/reserved_domains', { domain });
    resolver.cname(domain, String(body.cname_target));
    resolver.add({ type: 'A', name: String(body.cname_target), data: '127.0.0.1' });
    const challenge = body.acme_challenge_cname_target;
    if (challenge !== null) resolver.cname(`_acme-challenge.${domain.slice(2)}`, String(challenge));
    await client.call('PATCH', `/reserved_domains/${body.id}`, ECDSA);
    return String(body.id);
  }
  const read = async (client: GatewayClient, id: string) => {
    const { body } = await client.call('GET', `/reserved_domains/${id}`);
    return { certificate: body.certificate as { id: string }, ...(body.certificate_management_status as Status) };
  };
  const issued = async (client: GatewayClient, id: string) => {
    await expect.poll(async () => (await read(client, id)).provisioning_job, POLLING).toBeNull();
    return read(client, id);
  };
  const presented = (client: GatewayClient, name: string) => client.presented(name);
  const wake = (client: GatewayClient, id: string) =>
    client.call('PATCH', `/reserved_domains/${id}`, { description: `at ${Date.now()}` });

  it('orders again after a restart without a mail address, with the one account that a binding allows', async () => {
    const bindings = { 'kid-1': Buffer.alloc(32, 5).toString('base64url') };
    const ca = await pebble({ bindings, env: { PEBBLE_WFE_NONCEREJECT: '40' } });
    const dataDir = await makeDataDir();
    const externalAccountBinding = { kid: 'kid-1', hmacKey: bindings['kid-1'] };
    const first = await start(ca, { externalAccountBinding }, { dataDir });
    await issued(first.client, await reserve(first.client, 'first.example.test'));
    await first.gateway.close();
    // The CA took the binding once: the key of another one is not asked for.
    const second = await start(ca, { externalAccountBinding: { kid: 'kid-1', hmacKey: 'd3Jvbmc' } }, { dataDir });
    await issued(second.client, await reserve(second.client, 'second.example.test'));
    expect(ca.count('There are now 1 accounts in memory')).toBe(1);
    expect(ca.count('There are now 2 accounts in memory')).toBe(0);
  });

  it(
    'has one account for all gateways of a database, also after the one that orders is gone',
    unless(NO_POSTGRES),
    async () => {
      const bindings = { 'kid-1': Buffer.alloc(32, 5).toString('base64url') };
      const ca = await pebble({ bindings });
      const database = await PostgresServer.start();
      onTestFinished(() => database.end());
      const node = (hmacKey: string | undefined) => {
        const shared = { databaseUrl: database.url(), nodeAddress: `127.0.0.1:${ports.httpsPort}` };
        const encryptionKey = Buffer.alloc(32, 7).toString('base64');
        return start(
          ca,
          { externalAccountBinding: { kid: 'kid-1', hmacKey: String(hmacKey) } },
          { ...shared, encryptionKey },
        );
      };
      const first = await node(bindings['kid-1']);
      await issued(first.client, await reserve(first.client, 'first.example.test'));
      await first.gateway.close();
      // On another machine, without a file of the first one's.
      const second = await node('d3Jvbmc');
      await issued(second.client, await reserve(second.client, 'second.example.test'));
      expect(ca.count('There are now 2 accounts in memory')).toBe(0);
    },
  );

  it('renews a certificate that the CA revokes early, and no client is shown it by then', async () => {
    const ca = await pebble();
    const { client, gateway } = await start(ca, { profile: 'default' }); // Without one, it chooses any.
    const id = await reserve(client, 'early.example.test');
    const { certificate, renews_at } = await issued(client, id);
    const first = await presented(client, 'early.example.test');
    expect(Date.parse(String(renews_at)) - Date.now()).toBeGreaterThan(50 * DAY);
    const { certificatePem, privateKeyPem } = gateway.store.tlsCertificates.keyPair(certificate.id) ?? {};
    const clients = await newClients(gateway, 'early.example.test', await ca.root());

    const at = (hours: number) => new Date(Date.now() + hours * HOUR).toISOString();
    await ca.suggestRenewal(String(certificatePem), {
      suggestedWindow: { start: at(-2), end: at(-1) },
      explanationURL: 'https://ca.example.test/incident',
    });
    // The CA is first asked an hour after the certificate was issued.
    ahead = HOUR + 60_000;
    await wake(client, id);
    await expect
      .poll(async () => (await presented(client, 'early.example.test')).serialNumber, POLLING)
      .not.toBe(first.serialNumber);
    await issued(client, id);
    expect(ca.count('is a replacement of')).toBe(1);
    const next = await presented(client, 'early.example.test');

    // By the certificate's own key: the gateway does not hear of it.
    await revokeAtCa(ca, String(certificatePem), String(privateKeyPem));
    expect([await ca.status(first.serialNumber), await ca.status(next.serialNumber)]).toEqual(['Revoked', 'Valid']);
    const before = clients.shown.length;
    await until(() => clients.shown.length >= before + 20, 'clients after the revocation');
    await clients.stop();
    // Those that were under way may have been shown the certificate just before.
    expect([...new Set(clients.shown.slice(before + clients.count))]).toEqual([next.serialNumber]);
    expect(new Set(clients.shown)).toEqual(new Set([first.serialNumber, next.serialNumber]));
  });

  it('renews six-day certificates at half of their lifetime, and says which profiles there are', async () => {
    const ca = await pebble();
    const { client, gateway } = await start(ca, { profile: 'shortlived' });
    const { renews_at } = await issued(client, await reserve(client, 'short.example.test'));
    const left = Date.parse((await presented(client, 'short.example.test')).validTo) - Date.parse(String(renews_at));
    expect(left / DAY).toBeCloseTo(3, 1);
    await gateway.close();
    const second = await start(ca, { profile: 'tiny' });
    const id = await reserve(second.client, 'tiny.example.test');
    await expect
      .poll(async () => (await read(second.client, id)).provisioning_job?.msg, POLLING)
      .toBe('The certificate authority has no profile tiny. It has default, shortlived; change GATEWAY_ACME_PROFILE.');
  });

  it('certifies the address of a gateway without a domain, for browsers and at ports, and agents get the CA that they pin', async () => {
    const ca = await pebble();
    const httpsPorts = await freePorts(2);
    const { gateway } = await start(ca, { ownNames: 'public' }, { domain: 'localhost', ip: '127.0.0.1', httpsPorts });
    const root = await ca.root();
    // Clients name no address in the handshake; agents name no protocol either.
    const trusts = (port: number, trusted: string, ALPNProtocols: string[]) =>
      new Promise<boolean>((resolve) => {
        const socket = connect({ host: '127.0.0.1', port, ca: trusted, ALPNProtocols }, () => resolve(true));
        socket.on('error', () => resolve(false)).once('secureConnect', () => socket.destroy());
      });
    await expect.poll(() => trusts(gateway.httpsPort, root, ['h2', 'http/1.1']), POLLING).toBe(true);
    const session = await agentSession(gateway).connect();
    const listener = await session.httpEndpoint().listen(false);
    expect(await trusts(Number(new URL(String(listener.url())).port), root, [])).toBe(true);
    expect(await trusts(gateway.httpsPort, gateway.sessionCa, [])).toBe(true);
  });

  it('of its own root that nobody else knows certifies all names, and devices join with either connector', async () => {
    const ca = await pebble();
    for (const name of ['localhost', 'api.localhost', 'connect.localhost', 'sign-in.localhost'])
      resolver.add({ type: 'A', name, data: '127.0.0.1' });
    const own = { ownNames: 'all', root: await ca.root() } as const;
    const { gateway, client } = await start(ca, own, { domain: 'localhost', sessionPort: null });
    for (const name of ['api.localhost', 'connect.localhost'])
      await expect.poll(async () => (await presented(client, name)).issuer, POLLING).toContain('Pebble');
    const { secret } = await enrolmentKey(gateway, { site: '*.site.localhost' });
    const { store } = gateway;
    const pair = store.tlsCertificates.keyPair(String(store.ownDomains.certificateFor('api.localhost')));
    // Another server has the name's certificate: no pin holds there.
    const origin = `https://api.localhost:${await serverInFront(gateway, pair as NonNullable<typeof pair>)}`;
    const place = { origin: gateway.apiUrl, isProxied: false, caPem: gateway.sessionCa, publicNames: 'all' } as const;
    const roads = CONNECTORS.flatMap((kind) =>
      [place, { ...place, origin, isProxied: true }].map((at) => ({ kind, at })),
    );
    for (const { kind, at } of roads) {
      const name = at.isProxied ? `${kind}-proxied` : kind;
      const env = { AGENT_JOIN_CODE: joinCode(at, secret), AGENT_NAME: name, AGENT_CONNECTOR: kind };
      const folder = temporaryFolder();
      const agent = AgentProcess.inTest(folder, env);
      await agent.logged('session online');
      await agent.end();
      // From what it keeps.
      await AgentProcess.inTest(folder, { AGENT_CONNECTOR: kind }).logged('session online');
    }
  });

  it('replaces and revokes a certificate whose key has leaked, and changes the key of its account, on command', async () => {
    const ca = await pebble();
    const dataDir = await makeDataDir();
    const { client, gateway } = await start(ca, {}, { dataDir });
    const id = await reserve(client, 'leaked.example.test');
    await issued(client, id);
    const leaked = await presented(client, 'leaked.example.test');
    await revokeCertificate(gateway.store, 'leaked.example.test', 'keyCompromise');
    await changeAccountKey(gateway.store);
    await wake(client, id);
    await expect.poll(() => ca.status(leaked.serialNumber), POLLING).toBe('Revoked');
    const next = await presented(client, 'leaked.example.test');
    expect(await ca.status(next.serialNumber)).toBe('Valid');
    expect(next.publicKey.equals(leaked.publicKey)).toBe(false);
    await expect.poll(() => nextAccountKey(gateway.store), POLLING).toBeNull();
    const key = readFileSync(join(dataDir, 'gateway', 'acme-account.key'));
    await gateway.close();

    const again = await start(ca, {}, { dataDir });
    expect(readFileSync(join(dataDir, 'gateway', 'acme-account.key'))).toEqual(key);
    await issued(again.client, await reserve(again.client, 'later.example.test'));
    expect(ca.count('There are now 2 accounts in memory')).toBe(0);
    const uploaded = revokeCertificate(again.gateway.store, 'other.example.test', 'superseded');
    await expect(uploaded).rejects.toThrow('other.example.test has no automatic certificate');
  });

  it('serves the chain that the settings prefer', async () => {
    const ca = await pebble({ env: { PEBBLE_ALTERNATE_ROOTS: '2', PEBBLE_CHAIN_LENGTH: '2' } });
    const wanted = new X509Certificate(await ca.root(2)).subject.replace(/^.*CN=/s, '');
    const { client } = await start(ca, { chain: wanted });
    const { certificate } = await issued(client, await reserve(client, 'chain.example.test'));
    const { body } = await client.call('GET', `/tls_certificates/${certificate.id}`);
    const last = String(body.certificate_pem)
      .split(/(?=-----BEGIN)/)
      .at(-1);
    expect(new X509Certificate(String(last)).issuer).toContain(`CN=${wanted}`);
  });

  it('keeps the account when it is killed after the CA has changed its key, before that is written', async () => {
    const ca = await pebble();
    const file = join(temporaryFolder(), 'account');
    const next = await makePrivateKey('ecdsa');
    const start = () => new AcmeAccountKey(file, box);
    const account = async (key: AcmeAccountKey, pem: string | null, changes = false) => {
      const at = new AcmeCa(accountAt(ca), key, null, () => pem);
      const requests = at.requests(new Conversation(ca.serverCa, new AbortController().signal));
      if (changes) await at.changeKey(requests);
      return (await at.account(requests)).url;
    };
    const url = await account(start(), null);
    const killed = start();
    killed.replace = () => Promise.reject(new Error('killed'));
    await expect(account(killed, next, true)).rejects.toThrow('killed');
    expect(await account(start(), next)).toBe(url);
    expect(await start().load()).toBe(next);
    expect(await account(start(), null)).toBe(url);
  });

  it.each(['http-01', 'tls-alpn-01'] as const)('certifies an IP address with %s', async (type) => {
    const ca = await pebble();
    const http = new HttpChallenges();
    const tlsAlpn = new TlsAlpnChallenges();
    const web = createHttpServer((req, res) => {
      const answer = http.answer(String(req.headers.host).replace(/:\d+$/, ''), String(req.url));
      res.writeHead(answer === undefined ? 404 : 200).end(answer);
    }).listen(ports.httpPort, '127.0.0.1');
    const front = createServer((socket) => {
      const context = tlsAlpn.context('1.0.0.127.in-addr.arpa');
      if (context) answerTlsAlpn(socket, context);
      else socket.destroy();
    }).listen(ports.httpsPort, '127.0.0.1');
    onTestFinished(() => {
      web.close();
      front.close();
    });
    const issuer = new AcmeIssuer(
      {
        ca: new AcmeCa(accountAt(ca), new AcmeAccountKey(join(temporaryFolder(), 'account'), box)),
        targets: () => ({ cname_target: null, acme_challenge_cname_target: null }),
        trust: ca.serverCa,
        plainChallenges: [type],
        dnsServers: [resolver.address],
      },
      { http, tlsAlpn, txt: new TxtChallenges(), clock: systemClock },
    );
    const request = { domain: '127.0.0.1', privateKeyType: 'ecdsa' } as const;
    const { certificatePem } = await issuer.issue(request, new AbortController().signal);
    const leaf = new X509Certificate(certificatePem);
    expect(leaf.subjectAltName).toBe('IP Address:127.0.0.1');
    // Let's Encrypt certifies addresses for six days only.
    expect(Date.parse(leaf.validTo) - Date.parse(leaf.validFrom)).toBeLessThan(7 * DAY);
  });
});
