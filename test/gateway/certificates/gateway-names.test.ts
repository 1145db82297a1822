import { X509Certificate } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { pendingRevocations, revokeCertificate } from '../../../src/gateway/certificates/certificate-errands.ts';
import { certificateFacts } from '../../../src/gateway/certificates/certificate-facts.ts';
import { readUploadedPair } from '../../../src/gateway/certificates/certificate-upload.ts';
import { claimGatewayNames } from '../../../src/gateway/certificates/gateway-names.ts';
import type { ManagedDomainRow } from '../../../src/gateway/store/domains.ts';
import { openGatewayStore } from '../../../src/gateway/store/open-gateway-store.ts';
import type { Store } from '../../../src/gateway/store/store.ts';
import type { OwnNamesChoice } from '../../../src/settings/certificate-settings.ts';
import { AcmeServer, NO_ACME_SERVER } from '../../support/acme-server.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { startTestGateway } from '../../support/gateway.ts';
import { GatewayClient } from '../../support/gateway-client.ts';
import { NameServer } from '../../support/name-server.ts';
import { unless } from '../../support/requirements.ts';
import { recordingLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

/** Loopback addresses of this process only: CAs validate at fixed ports. */
const net = `127.79.${process.pid % 250}`;
const [RESOLVER, GATEWAY, CA] = [`${net}.1`, `${net}.2`, `${net}.3`];

/** Enough for validations and paused polls. */
const POLLING = { timeout: 60_000, interval: 100 };
const CHALLENGE = '_acme-challenge.gateway.test';

describe('claiming the gateway’s own names', () => {
  const policy = (authority: string) => ({ authority, private_key_type: 'ecdsa' }) as const;
  let dataDir: string;
  let store: Store;
  beforeEach(() => {
    dataDir = temporaryFolder();
    store = openGatewayStore({ dataDir, encryptionKey: null });
  });
  afterEach(() => {
    store.database.close();
  });

  /** Stores a certificate, as after a successful first order. */
  async function claimAndIssue(domain: string): Promise<ManagedDomainRow> {
    await claimGatewayNames(store, [domain], policy('https://first.test/'));
    const row = store.ownDomains.byName(domain);
    if (!row) throw new Error('the name was not claimed');
    const { certificatePem, privateKeyPem } = await issueCertificate({ subject: `CN=${domain}`, names: [domain] });
    const { leaf, key } = readUploadedPair(certificatePem, privateKeyPem);
    const common = { id: 'cert_1', created_at: store.now(), description: null, metadata: null, issued_at: store.now() };
    const facts = certificateFacts(leaf, key);
    const renewal = { renews_at: '2099-01-01T00:00:00Z', due_at: '2099-01-01T00:00:00Z' };
    const issued = { ...row, ...renewal, certificate_id: 'cert_1', job: null };
    await store.database.write(() => {
      store.tlsCertificates.insertWithKey({ ...common, certificate_pem: certificatePem, facts }, privateKeyPem);
      store.ownDomains.update(issued);
    });
    return issued;
  }

  it('orders nothing again after a restart', async () => {
    const issued = await claimAndIssue('api.gw.test');
    await claimGatewayNames(store, ['api.gw.test'], policy('https://first.test/'));
    expect(store.ownDomains.managed()).toEqual([issued]);
  });

  it('orders from a new CA once it is set, and keeps the certificate until then', async () => {
    const { certificate_id } = await claimAndIssue('api.gw.test');
    await claimGatewayNames(store, ['api.gw.test'], policy('https://second.test/'));
    expect(store.ownDomains.due(store.now(), 1)).toMatchObject([{ domain: 'api.gw.test', certificate_id }]);
    expect(store.ownDomains.certificateFor('api.gw.test')).toBe(certificate_id);
  });

  it('drops names that are no longer configured, with their certificates and keys, and revokes those of which that was asked', async () => {
    await claimAndIssue('api.gw.test');
    await revokeCertificate(store, 'api.gw.test', 'keyCompromise');
    await claimGatewayNames(store, ['*.gw.test', 'gw.test'], policy('https://first.test/'));
    expect(store.ownDomains.managed().map(({ domain }) => domain)).toEqual(['*.gw.test', 'gw.test']);
    expect(store.ownDomains.certificateFor('api.gw.test')).toBeNull();
    expect(store.tlsCertificates.page(null, 10)).toEqual([]);
    expect(pendingRevocations(store.database)).toMatchObject([{ reason: 'keyCompromise' }]);
  });
});

describe('the gateway’s own names', { timeout: 300_000, ...unless(NO_ACME_SERVER) }, () => {
  let resolver: NameServer;
  let ca: AcmeServer;
  let dataDir: string;
  /** How far the gateway's wall clock is ahead. */
  let ahead = 0;

  beforeAll(async () => {
    const realNow = Date.now;
    vi.spyOn(Date, 'now').mockImplementation(() => realNow() + ahead);
    resolver = await NameServer.start(RESOLVER, 53);
    ca = await AcmeServer.start(CA, RESOLVER);
  }, 60_000);
  afterAll(async () => {
    await Promise.all([ca?.stop(), resolver?.stop()]);
    vi.restoreAllMocks();
  });
  beforeEach(() => {
    dataDir = temporaryFolder();
  });
  afterEach(() => {
    ahead = 0;
    for (const name of [CHALLENGE, 'api.gateway.test', 'connect.gateway.test']) resolver.remove(name);
  });

  async function start(ownNames: OwnNamesChoice, answersDns: boolean) {
    const { log, lines } = recordingLog();
    const account = { directoryUrl: ca.directoryUrl, contactEmail: null, externalAccountBinding: null };
    const gateway = await startTestGateway({
      ...{ dataDir, log, domain: 'gateway.test', host: GATEWAY, httpPort: 80, httpsPort: 443 },
      acme: { ...account, trust: ca.root, resolvers: [RESOLVER], ownNames },
      challengeDns: answersDns ? { host: GATEWAY, port: 0, nameServer: 'connect.gateway.test' } : null,
    });
    onTestFinished(() => gateway.close());
    if (gateway.dnsPort !== null) resolver.delegate('acme.gateway.test', GATEWAY, gateway.dnsPort);
    const client = await GatewayClient.of(gateway, GATEWAY);
    const localCa = new X509Certificate(gateway.sessionCa).publicKey;
    const isPublic = async (name: string) => !(await client.presented(name)).verify(localCa);
    const serial = async (name: string) => (await client.presented(name)).serialNumber;
    const job = (domain: string) => gateway.store.ownDomains.byName(domain)?.job;
    const issued = async (domain: string) => {
      await expect.poll(() => job(domain), POLLING).toBeNull();
      return gateway.store.ownDomains.byName(domain)?.renews_at ?? '';
    };
    return { gateway, lines, isPublic, serial, job, issued };
  }

  it('are validated with DNS, served to clients, kept over restarts and renewed', async () => {
    const first = await start('public', true);
    for (const name of ['*.gateway.test', 'gateway.test']) {
      await expect.poll(() => first.job(name)?.error_code, POLLING).toBe('DNS_ERROR');
      expect(first.job(name)?.msg).toBe(
        `The DNS record ${CHALLENGE} must be a CNAME to gateway.acme.gateway.test. Found: no such record.`,
      );
    }
    expect(await first.isPublic('door.gateway.test')).toBe(false);
    const { retries_at } = first.job('*.gateway.test') ?? {};
    expect(first.lines).toContainEqual(
      expect.objectContaining({ msg: 'certificate not issued', domain: '*.gateway.test', retries_at }),
    );
    await first.gateway.close();

    // The record is corrected, and the next attempt is due.
    resolver.cname(CHALLENGE, 'gateway.acme.gateway.test');
    ahead = Date.parse(String(retries_at)) + 60_000 - Date.now();
    const second = await start('public', true);
    const renewsAt = await second.issued('*.gateway.test');
    await second.issued('gateway.test');
    for (const name of ['door.gateway.test', 'api.gateway.test', 'gateway.test']) {
      expect([name, await second.isPublic(name)]).toEqual([name, true]);
    }
    // Browsers accept a wildcard for one level only, and agents trust the gateway's own CA.
    for (const name of ['front.door.gateway.test', 'connect.gateway.test', 'gateway.other.test']) {
      expect([name, await second.isPublic(name)]).toEqual([name, false]);
    }
    const serial = await second.serial('door.gateway.test');
    await second.gateway.close();

    const third = await start('public', true);
    expect(await third.serial('door.gateway.test')).toBe(serial);
    expect(third.job('*.gateway.test')).toBeNull();
    await third.gateway.close();

    ahead += Date.parse(renewsAt) + 3_600_000 - Date.now();
    const fourth = await start('public', true);
    await expect.poll(() => fourth.serial('door.gateway.test'), POLLING).not.toBe(serial);
    expect(await fourth.isPublic('door.gateway.test')).toBe(true);
    await fourth.gateway.close();

    const last = await start('none', true);
    expect(await last.isPublic('door.gateway.test')).toBe(false);
    expect(last.gateway.store.tlsCertificates.page(null, 10)).toEqual([]);
  });

  it('are validated over a connection without a DNS server, and serve agents if configured', async () => {
    const names = ['api.gateway.test', 'sign-in.gateway.test', 'connect.gateway.test'];
    for (const name of names) {
      resolver.add({ type: 'A', name, data: GATEWAY });
    }
    const { issued, isPublic, gateway } = await start('all', false);
    for (const name of names) {
      await issued(name);
      expect([name, await isPublic(name)]).toEqual([name, true]);
    }
    expect(await isPublic('door.gateway.test')).toBe(false);
    await gateway.close();
    const store = openGatewayStore({ dataDir, encryptionKey: null });
    const [row] = store.tlsCertificates.page(null, 1);
    expect(row?.private_key.toString('latin1')).not.toContain('PRIVATE KEY');
    store.database.close();
  });
});
