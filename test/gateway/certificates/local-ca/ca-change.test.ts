import { X509Certificate } from 'node:crypto';
import { copyFileSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { CaFollower } from '../../../../src/agent/join/ca-follower.ts';
import { fetchAuthtoken } from '../../../../src/agent/join/gateway-calls.ts';
import { installationFor, writeInstallation } from '../../../../src/agent/join/installation.ts';
import { enrol } from '../../../../src/agent/join/join-site.ts';
import { openProof } from '../../../../src/agent/join/pinned-time.ts';
import { beginCaChange, endCa, forgetNextCa } from '../../../../src/gateway/certificates/local-ca/ca-rotation.ts';
import { GatewayCa } from '../../../../src/gateway/certificates/local-ca/followed-ca.ts';
import { makeCa, openLocalCa } from '../../../../src/gateway/certificates/local-ca/local-ca.ts';
import { openPresentCa } from '../../../../src/gateway/certificates/local-ca/shared-ca.ts';
import { joinCode } from '../../../../src/gateway/devices/invite.ts';
import { rotateDevice } from '../../../../src/gateway/devices/manage-devices.ts';
import { caReport, retireCa, rotateCa } from '../../../../src/gateway/offline/own-cas.ts';
import { NO_PROXIES } from '../../../../src/lib/network/proxy-rules.ts';
import { caIdOf, pinnedProtocols } from '../../../../src/lib/tls/pinned-chain.ts';
import { probeTls } from '../../../../src/lib/tls/tls-probe.ts';
import { fetchTrusting } from '../../../../src/management/fetch-trusting.ts';
import { TimeProof } from '../../../../src/management/resources/time-proof.ts';
import { ownCaOf } from '../../../../src/settings/learned-cas.ts';
import { enrolmentKey } from '../../../support/enrolment.ts';
import { startTestGateway, type TestGateway } from '../../../support/gateway.ts';
import { InstantClock } from '../../../support/instant-clock.ts';
import { silentLog } from '../../../support/silent-log.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';
import { until } from '../../../support/until.ts';

const NONCE = 'A'.repeat(43);
const JOINING = { name: 'cam', proxies: NO_PROXIES, clock: new InstantClock(), deadline: 0, onWait: () => {} };

let gateway: TestGateway;
let dataDir: string;
/** The CA that it has had first. */
let first: string;
beforeEach(async () => {
  dataDir = temporaryFolder();
  gateway = await startTestGateway({ dataDir });
  first = gateway.sessionCa;
});
afterEach(() => gateway.close());

/** Whether a client that has pinned a CA is shown a chain of it. */
async function isShown(ca: string, { httpsPort } = gateway): Promise<boolean> {
  const protocols = pinnedProtocols(ca);
  const socket = connect({ host: '127.0.0.1', port: httpsPort });
  onTestFinished(() => void socket.destroy());
  const name = { host: 'api.localhost', serverName: 'api.localhost' };
  const { distrust } = await probeTls(socket, name, { ca, protocols, signal: AbortSignal.timeout(10_000) });
  socket.destroy();
  return distrust === null;
}

const shownCas = async () => {
  const answer = await fetchTrusting({ isUnverified: true })(`${gateway.apiUrl}/ca.pem`, {
    ...{ method: 'GET', headers: {}, redirect: 'manual' },
    signal: AbortSignal.timeout(10_000),
  });
  return answer.text();
};

const caFile = () => readFileSync(join(dataDir, 'gateway', 'ca.pem'), 'utf8');

async function changed(): Promise<string> {
  await rotateCa({ dataDir }, gateway.store, undefined);
  const next = nextIn();
  await until(() => isShown(next), 'the next CA');
  return next;
}

const nextIn = () => gateway.store.database.fact('ca_next_certificate') ?? '';

async function retired(losesDevices = true): Promise<void> {
  await retireCa({ dataDir }, gateway.store, losesDevices);
  await until(async () => !(await isShown(first)), 'the CA before has ended');
}

/** A device that has joined, with what its agent knows. */
async function device(secret: string, place = { caPem: first, nextCaPem: null as string | null }, beside = '') {
  const code = joinCode({ origin: gateway.apiUrl, isProxied: false, ...place, publicNames: 'none' }, secret);
  const installation = installationFor(code, null, null);
  const { enrolment, caPem } = await enrol(installation, JOINING);
  const { device_id: id, name, site, domain, authtoken } = enrolment;
  const folder = temporaryFolder();
  const file = join(folder, 'enrolment.json');
  await writeInstallation(file, { ...installation, device: { id, name, site, domain } });
  const ownCa = ownCaOf(folder, `${caPem}${beside}`);
  const access = {
    ...{ authtoken: () => authtoken, serverAddr: gateway.sessionAddress, authorities: ownCa, proxies: NO_PROXIES },
    ...{ enrolment: file, apiUrl: null, ownCa },
  };
  const context = {
    clock: new InstantClock(),
    log: silentLog,
    settings: { dataDir: folder },
  };
  const follower = new CaFollower(
    context,
    () => access,
    () => false,
  );
  follower.stop();
  return { id, file, ownCa, caPem, follow: () => follower.look() };
}

describe('a change of the CA', () => {
  it('both CAs are trusted until the first one ends; files and a restart know the next one', async () => {
    const next = await changed();
    expect([await isShown(first), await isShown(next), await shownCas()]).toEqual([true, true, first + next]);
    const answer = await fetchTrusting({ isUnverified: true })(`${gateway.apiUrl}/time`, {
      ...{ method: 'POST', headers: { 'content-type': 'application/json' }, redirect: 'manual' },
      body: JSON.stringify({ nonce: NONCE }),
      signal: AbortSignal.timeout(10_000),
    });
    const proof = TimeProof.parse(JSON.parse(await answer.text()));
    for (const ca of [first, next]) {
      expect(openProof(proof, NONCE, [new X509Certificate(ca)]).cas).toEqual([first, next]);
    }
    expect(caFile()).toBe(first);
    // Repeated, it goes on.
    expect(await rotateCa({ dataDir }, gateway.store, undefined)).toBe(false);
    expect(nextIn()).toBe(next);

    await retired();
    expect([await isShown(next), await shownCas(), caFile()]).toEqual([true, next, next]);
    await expect(retireCa({ dataDir }, gateway.store, true)).rejects.toThrow(/not being changed/);
    await gateway.close();
    gateway = await startTestGateway({ dataDir });
    expect([gateway.sessionCa, await isShown(next), await isShown(first)]).toEqual([next, true, false]);
  });

  it('a gateway that was killed while the CA ended goes on with the next one', async () => {
    const next = await changed();
    const key = readFileSync(join(dataDir, 'gateway', 'ca-key.pem'), 'utf8');
    await gateway.close();
    const folder = join(dataDir, 'gateway');
    const copy = (name: string) => copyFileSync(join(folder, name), join(dataDir, name));
    for (const name of ['ca.pem', 'ca-key.pem']) copy(name);
    gateway = await startTestGateway({ dataDir });
    await endCa(gateway.store, { id: caIdOf(new X509Certificate(first)), caPem: first });
    await gateway.close();
    for (const names of [['ca.pem', 'ca-key.pem'], ['ca.pem'], []]) {
      for (const name of names) copyFileSync(join(dataDir, name), join(folder, name));
      gateway = await startTestGateway({ dataDir });
      expect(gateway.sessionCa).toBe(next);
      expect(readFileSync(join(folder, 'ca-key.pem'), 'utf8')).not.toBe(key);
      await gateway.close();
    }
    gateway = await startTestGateway({ dataDir });
  });

  it('an old plan ends no CA, and gateways trust one that has ended for a few minutes', async () => {
    const folder = join(dataDir, 'gateway');
    const { store } = gateway;
    let now = Date.now();
    const ca = await GatewayCa.open(folder, store, silentLog, () => now);
    const before = { id: ca.id, caPem: ca.caPem };
    const [next, later] = [await makeCa(), await makeCa()];
    await beginCaChange(store, next, new Date(now + 60_000).toISOString());
    await ca.look();
    await beginCaChange(store, next, null);
    now += 60_000;
    await ca.look();
    expect([ca.caPem, await endCa(store, before, now)]).toEqual([first, false]);
    await endCa(store, before);
    await beginCaChange(store, later, null);
    expect(await endCa(store, before)).toBe(false);
    await ca.look();
    expect([ca.caPem, ca.trusted]).toEqual([next.caPem, first + next.caPem + later.caPem]);
    now += 300_000;
    expect(ca.trusted).toBe(next.caPem + later.caPem);
  });

  it('ends at its date', async () => {
    const next = await makeCa();
    await beginCaChange(gateway.store, next, new Date(Date.now() + 200).toISOString());
    await until(async () => (await isShown(next.caPem)) && !(await isShown(first)), 'the next CA alone');
  });
});

it('the gateway and commands may put the files of a change in place at the same time', async () => {
  const next = await changed();
  await endCa(gateway.store, await openLocalCa(join(dataDir, 'gateway'), silentLog));
  const open = () => openPresentCa(join(dataDir, 'gateway'), gateway.store, silentLog);
  const opened = await Promise.all(Array.from({ length: 4 }, open));
  expect(opened.map(({ caPem }) => caPem)).toEqual(Array(4).fill(next));
});

describe('devices', () => {
  it('follow a change, and the gateway knows who has; the others are not lost by a command', async () => {
    const { secret } = await enrolmentKey(gateway, { site: '*.site.localhost' });
    const [one, other] = [await device(secret), await device(secret)];
    const next = await changed();
    expect(caReport({ dataDir }, gateway.store).change).toMatchObject({
      followed: 0,
      missing: ['cam.site.localhost', 'cam-2.site.localhost'],
    });
    await one.follow();
    expect(one.ownCa.pem).toBe(first + next);
    expect(caReport({ dataDir }, gateway.store).change).toMatchObject({
      followed: 1,
      missing: ['cam-2.site.localhost'],
    });
    await expect(retireCa({ dataDir }, gateway.store, false)).rejects.toThrow(
      /1 of the devices .*cam-2\.site\.localhost/,
    );
    await other.follow();
    await retired(false);

    // The one before has ended: they know, and get another authtoken with the key of their installation.
    for (const { id, file, ownCa, follow } of [one, other]) {
      await follow();
      expect(ownCa.pem).toBe(next);
      await gateway.store.database.write(() => {
        const row = gateway.store.devices.get(id);
        if (row) rotateDevice(gateway.store, row, { by: 'test', tcpHost: 'localhost' });
      });
      expect(await fetchAuthtoken(file, { proxies: NO_PROXIES, ownCa })).toMatchObject({
        authtoken: expect.any(String),
      });
    }
  });

  it('keep other CAs of their file, and let a CA that another replaces prove nothing', async () => {
    const { secret } = await enrolmentKey(gateway, { site: '*.site.localhost' });
    const { caPem: beside } = await makeCa();
    const one = await device(secret, undefined, beside);
    await one.follow();
    expect(one.ownCa.pem).toBe(first + beside);
    const next = await changed();
    await one.follow();
    expect(one.ownCa.pem).toBe(beside + first + next);
    const trusted = () => gateway.store.devices.get(one.id)?.trusted_cas;
    const ids = [first, next].map((pem) => caIdOf(new X509Certificate(pem)));
    expect(trusted()).toEqual(ids);

    // A gateway that was restored from a backup has forgotten it.
    await gateway.store.database.write(() => {
      const row = gateway.store.devices.get(one.id);
      if (row) gateway.store.devices.update({ ...row, trusted_cas: null });
    });
    await one.follow();
    expect(trusted()).toEqual(ids);

    // Who has the first CA's key shows another next CA: the device trusts the list of the one that it knows.
    await gateway.store.database.write(() => forgetNextCa(gateway.store.database));
    await until(async () => !(await isShown(next)), 'the first CA alone');
    await changed();
    await one.follow();
    expect(one.ownCa.pem).toBe(beside + first + next);
  });

  it('trust no CA that had ended before they asked, though their file has it', async () => {
    const { secret } = await enrolmentKey(gateway, { site: '*.site.localhost' });
    const { caPem: beside } = await makeCa();
    const one = await device(secret);
    const next = await changed();
    // As copied from /ca.pem during the change.
    const both = await device(secret, undefined, next + beside);
    await retired();
    await both.follow();
    expect(both.ownCa.pem).toBe(beside + next);
    expect(gateway.store.devices.get(both.id)?.trusted_cas).toEqual([caIdOf(new X509Certificate(next))]);
    // It knows nothing of the next one.
    await one.follow();
    expect(one.ownCa.pem).toBe(first);
  });

  it('a code from before the change joins until the CA has ended, one from the change also afterwards', async () => {
    const { secret } = await enrolmentKey(gateway, { site: '*.site.localhost' });
    const next = await changed();
    expect((await device(secret)).caPem).toBe(first);
    await retired();
    const during = await device(secret, { caPem: first, nextCaPem: next });
    expect(during.caPem).toBe(next);
    await expect(device(secret)).rejects.toThrow(/not the one of the code.*Nothing was sent/);
  });
});
