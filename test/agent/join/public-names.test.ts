import { join } from 'node:path';
import { afterEach, beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest';
import { GatewayConnector } from '../../../src/agent/connectors/gateway-connector.ts';
import { fetchAuthtoken, shareLinksAt } from '../../../src/agent/join/gateway-calls.ts';
import { installationFor, writeInstallation } from '../../../src/agent/join/installation.ts';
import { enrol } from '../../../src/agent/join/join-site.ts';
import { openLink } from '../../../src/agent/open-link.ts';
import { joinCode } from '../../../src/gateway/devices/invite.ts';
import { rotateDevice } from '../../../src/gateway/devices/manage-devices.ts';
import { NO_PROXIES, parseProxy } from '../../../src/lib/network/proxy-rules.ts';
import { systemClock } from '../../../src/lib/time/clock.ts';
import type { TrustedCas } from '../../../src/lib/tls/tls-options.ts';
import { type Issued, issueCertificate } from '../../support/certificates.ts';
import { CONNECTORS } from '../../support/connectors.ts';
import { enrolmentKey, inviteTo } from '../../support/enrolment.ts';
import { getPublic, startTestGateway, type TestGateway } from '../../support/gateway.ts';
import { InstantClock } from '../../support/instant-clock.ts';
import { TestProxy } from '../../support/proxies.ts';
import { certifyNames, ordering, serverInFront } from '../../support/public-names.ts';
import { silentLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

let root: Issued;
let gateway: TestGateway;
beforeAll(async () => {
  root = await issueCertificate({ subject: 'CN=public CA', ca: true });
});
/** Its names have certificates of a CA that nothing here trusts, as a public one that is younger than the device. */
beforeEach(async () => {
  gateway = await startTestGateway({ ...ordering('all'), sessionPort: null });
  await certifyNames(gateway, root, ['api.localhost', 'connect.localhost']);
});
afterEach(() => gateway.close());

const options = { name: 'cam', proxies: NO_PROXIES, clock: new InstantClock(), deadline: 0, onWait: () => {} };

it('a device whose code trusts the gateway’s own CA alone joins, and gets another authtoken, when public CAs sign its names', async () => {
  await expect(getPublic(gateway, gateway.apiUrl)).rejects.toMatchObject({ code: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE' });
  const installation = installationFor(await inviteTo(gateway), null, null);
  const file = join(temporaryFolder(), 'enrolment.json');
  const { enrolment, timeCaPem } = await enrol(installation, options);
  expect(timeCaPem).toBe(gateway.sessionCa);
  const { device_id: id, name, site, domain } = enrolment;
  await writeInstallation(file, { ...installation, device: { id, name, site, domain } });
  const { store } = gateway;
  await store.database.write(() => {
    const device = store.devices.get(id);
    if (device) rotateDevice(store, device, { by: 'test', tcpHost: 'localhost' });
  });
  const fetched = await fetchAuthtoken(file, { proxies: NO_PROXIES });
  expect(fetched?.authtoken).toMatch(/_/);
  expect(fetched?.authtoken).not.toBe(enrolment.authtoken);
});

it('a device whose code trusts public CAs joins when the gateway’s own CA signs its names again', async () => {
  const { secret } = await enrolmentKey(gateway, { site: '*.site.localhost' });
  const place = { origin: gateway.apiUrl, isProxied: false, caPem: gateway.sessionCa, publicNames: 'all' } as const;
  const { store } = gateway;
  await store.database.write(() => {
    for (const row of store.ownDomains.managed()) store.ownDomains.delete(row.id);
  });
  const { enrolment, timeCaPem } = await enrol(installationFor(joinCode(place, secret), null, null), options);
  expect(enrolment.name).toBe('cam');
  // Sessions trust it beside the CAs of the operating system.
  expect(timeCaPem).toBe(gateway.sessionCa);
});

it.each(['public', 'all'] as const)(
  'a device trusts the private CA of a server in front of the API as its gateway proves it, with the names "%s"',
  async (ownNames) => {
    const names = ['api.localhost'];
    const certificate = await issueCertificate({ subject: 'CN=proxy', names, issuer: root });
    const joinBy = async (knows: string | null) => {
      const behind = await startTestGateway({ ...ordering(ownNames, knows), sessionPort: null });
      onTestFinished(() => behind.close());
      const origin = `https://api.localhost:${await serverInFront(behind, certificate)}`;
      const { secret } = await enrolmentKey(behind, { site: '*.site.localhost' });
      const place = { origin, isProxied: true, caPem: behind.sessionCa, publicNames: ownNames } as const;
      return { installation: installationFor(joinCode(place, secret), null, null), behind };
    };
    const unknown = await joinBy(null);
    await expect(enrol(unknown.installation, options)).rejects.toThrow(
      /is not signed by the CA|unable to (get|verify)/,
    );

    const { installation, behind } = await joinBy(root.certificatePem);
    const { enrolment } = await enrol(installation, options);
    const { device_id: id, name, site, domain, authtoken, session_address: serverAddr } = enrolment;
    const file = join(temporaryFolder(), 'enrolment.json');
    await writeInstallation(file, { ...installation, device: { id, name, site, domain } });
    const access = { serverAddr, proxies: NO_PROXIES, enrolment: file, apiUrl: null, authorities: null };
    const links = await shareLinksAt({ ...access, authtoken: () => authtoken });
    expect(await links.list()).toEqual([]);
    // Somebody else who shows the gateway's CA, and proves nothing.
    const stranger = await issueCertificate({ subject: 'CN=stranger', names });
    const elsewhere = `https://api.localhost:${await serverInFront(behind, stranger)}`;
    const { secret } = await enrolmentKey(behind, { site: '*.site.localhost' });
    const place = { origin: elsewhere, isProxied: true, caPem: behind.sessionCa, publicNames: ownNames } as const;
    const intercepted = installationFor(joinCode(place, secret), null, null);
    await expect(enrol(intercepted, options)).rejects.toThrow(/is not signed by the CA|self-signed|unable to/);
    expect(behind.store.devices.where('id > ?', [''])).toHaveLength(1);
  },
);

it('a device that was away while the gateway got another domain comes back by the names that it knows', async () => {
  const dataDir = temporaryFolder();
  const before = await startTestGateway({ dataDir, domain: 'old.localhost', sessionPort: null });
  const { httpsPort } = before;
  const installation = installationFor(await inviteTo(before), null, null);
  const { enrolment } = await enrol(installation, options);
  await before.close();
  const after = await startTestGateway({ dataDir, domain: 'new.localhost', httpsPort, sessionPort: null });
  onTestFinished(() => after.close());
  expect((await enrol(installation, options)).enrolment.device_id).toBe(enrolment.device_id);
  for (const kind of CONNECTORS) {
    const serverAddr = enrolment.session_address;
    const authtoken = () => enrolment.authtoken;
    const link = {
      ...{ authtoken, serverAddr, authorities: { pem: after.sessionCa }, proxies: NO_PROXIES },
      ...{ version: '1.0.0', log: silentLog, clock: systemClock },
    };
    const agent = new GatewayConnector(link, serverAddr, () => openLink(kind, link));
    onTestFinished(() => agent.stop());
    const up = new Promise<void>((resolve) => agent.once('online', resolve));
    await agent.start();
    await up;
    await agent.stop();
  }
});

type Connector = (typeof CONNECTORS)[number];

/** A session comes online with each kind of trust: in the pinned CA, in the CAs of the system, and in both. */
async function comesOnline(kind: Connector, at: TestGateway, serverAddr: string, trusts = trustsIn(at)): Promise<void> {
  // Without the agent between, the SDK trusts the CAs of this machine, which the test does not change.
  const isChanged = (each: TrustedCas) => 'own' in each || 'pem' in each || serverAddr.includes('localhost');
  for (const authorities of trusts.filter((each) => kind === 'native' || isChanged(each))) {
    const link = {
      ...{ authtoken: () => at.authtoken, serverAddr, authorities, proxies: NO_PROXIES },
      ...{ version: '1.0.0', log: silentLog, clock: systemClock },
    };
    const agent = new GatewayConnector(link, serverAddr, () => openLink(kind, link));
    onTestFinished(() => agent.stop());
    const up = new Promise<void>((resolve) => agent.once('online', resolve));
    await agent.start();
    await up;
    await agent.stop();
  }
}

const trustsIn = ({ sessionCa }: TestGateway): TrustedCas[] => [
  { pem: sessionCa },
  { host: root.certificatePem },
  { host: '', own: sessionCa },
];

it.each(CONNECTORS)('a %s session trusts a pinned CA whatever CA signs the name for sessions', (kind) =>
  comesOnline(kind, gateway, `connect.localhost:${gateway.httpsPort}`),
);

it.each(CONNECTORS)('a %s session to an address trusts a pinned CA whatever CA signs the address', async (kind) => {
  const ip = '127.0.0.1';
  const byAddress = await startTestGateway({ ...ordering('all'), sessionPort: null, ip });
  onTestFinished(() => byAddress.close());
  await certifyNames(byAddress, root, [ip]);
  await comesOnline(kind, byAddress, `${ip}:${byAddress.httpsPort}`);
});

it.each(CONNECTORS)(
  'a %s session of a device that trusts public CAs comes back to the gateway’s own CA',
  async (kind) => {
    const before = await startTestGateway({ sessionPort: null });
    onTestFinished(() => before.close());
    const trust = { host: root.certificatePem, own: before.sessionCa };
    await comesOnline(kind, before, `127.0.0.1:${before.httpsPort}`, [trust]);
  },
);

it('a native session to an address whose certificate another CA has signed reconnects with one handshake', async () => {
  const ip = '127.0.0.1';
  const at = await startTestGateway({ ...ordering('all'), sessionPort: null, ip });
  onTestFinished(() => at.close());
  await certifyNames(at, root, [ip]);
  const proxy = await TestProxy.http();
  const serverAddr = `${ip}:${at.httpsPort}`;
  const link = {
    ...{ authtoken: () => at.authtoken, serverAddr, authorities: { pem: at.sessionCa } },
    ...{ proxies: { ...NO_PROXIES, all: parseProxy(`http://${proxy.address}`), exempt: () => false } },
    ...{ version: '1.0.0', log: silentLog, clock: systemClock },
  };
  const agent = new GatewayConnector(link, serverAddr, () => openLink('native', link));
  onTestFinished(() => agent.stop());
  const next = (event: 'online' | 'offline') => new Promise<void>((resolve) => agent.once(event, resolve));
  const up = next('online');
  await agent.start();
  await up;
  const back = next('offline').then(() => next('online'));
  const before = proxy.asked.length;
  proxy.cut();
  await back;
  expect(proxy.asked.slice(before)).toEqual([serverAddr]);
});
