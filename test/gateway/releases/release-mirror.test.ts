import { createHash, generateKeyPairSync } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { publicKeyText, signedManifest } from '../../../scripts/packages/release-manifest.js';
import { joinSite } from '../../../src/agent/join/join-site.ts';
import { issueApiKey } from '../../../src/gateway/store/tokens.ts';
import { NO_PROXIES } from '../../../src/lib/network/proxy-rules.ts';
import { systemClock } from '../../../src/lib/time/clock.ts';
import { approveRelease, planRelease, removeRelease } from '../../../src/update/approve-release.ts';
import { findRelease } from '../../../src/update/find-release.ts';
import { OwnGateway } from '../../../src/update/own-gateway.ts';
import { whySettled } from '../../../src/update/release-choice.ts';
import { releasesIn } from '../../../src/update/release-mirror.ts';
import { download, openSource } from '../../../src/update/release-source.ts';
import type { History } from '../../../src/update/update-records.ts';
import { inviteTo } from '../../support/enrolment.ts';
import { startTestGateway, type TestGateway } from '../../support/gateway.ts';
import { exchange } from '../../support/https-exchange.ts';
import { sharedFolder, temporaryFolder } from '../../support/temporary-folder.ts';

const CONTENT = Buffer.alloc(3_000_000, 'program ');
const { privateKey } = generateKeyPairSync('ed25519');
const GIVEN = { number: 0, keys: [publicKeyText(privateKey)] };
const NEWEST = { channel: 'stable', to: null } as const;
const NO_HISTORY: History = { version: 1, seen: {}, rejected: [], doubtful: {}, last: null, keys: null };

let gateway: TestGateway;
let root: string;
beforeAll(async () => {
  gateway = await startTestGateway();
  root = await joinedDevice('one', sharedFolder());
});
afterAll(() => gateway.close());

/** Joins a device as its service does. @returns the root of its file system */
async function joinedDevice(name: string, folder = temporaryFolder()): Promise<string> {
  const config = join(folder, 'etc/device-agent');
  mkdirSync(join(folder, 'var/lib/device-agent'), { recursive: true });
  const files = { installation: `${config}/enrolment.json`, settings: `${config}/settings.env`, settingsMode: 0o640 };
  const paths = { ...files, authtoken: `${config}/authtoken`, ca: `${config}/gateway-ca.pem`, dataDir: folder };
  const options = { name, proxies: NO_PROXIES, clock: systemClock, deadline: 0, onWait: () => {} };
  await joinSite(await inviteTo(gateway), paths, options);
  return folder;
}

const authtokenOf = (device: string) => readFileSync(join(device, 'etc/device-agent/authtoken'), 'utf8').trim();

async function gatewayOf(device: string): Promise<OwnGateway> {
  const found = await OwnGateway.find({ root: device, isBooted: false, run: async () => '' }, true);
  if (found === null) throw new Error('the device has joined');
  return found;
}

/** A folder with a signed release. */
function published(version: string, content = CONTENT, keys = [privateKey]): string {
  const folder = temporaryFolder();
  const name = `device-agent-${version}.tgz`;
  const sha256 = createHash('sha256').update(content).digest('hex');
  const files = [{ kind: 'npm', architecture: 'any', name, size: content.length, sha256 }];
  const times = { released: new Date().toISOString(), expires: new Date(Date.now() + 86_400_000).toISOString() };
  const release = { version, channel: 'stable', security: null, files, keys: { number: 0, keys: [] }, ...times };
  writeFileSync(join(folder, name), content);
  for (const each of ['manifest.json', `manifest-${version}.json`]) {
    writeFileSync(join(folder, each), signedManifest(release, keys));
  }
  return folder;
}

async function approve(folder: string): Promise<string[]> {
  const told: string[] = [];
  const plan = await planRelease(gateway.dataDir, openSource(folder, NO_PROXIES), NEWEST, GIVEN);
  await approveRelease(
    plan,
    async () => {},
    (line) => told.push(line),
  );
  // With what it has seen.
  onTestFinished(() => rmSync(releasesIn(gateway.dataDir), { recursive: true, force: true }));
  return told;
}

const asks = (path: string, authorization = `Bearer ${authtokenOf(root)}`, range?: string) =>
  exchange(`${gateway.apiUrl}/releases/${path}`, { headers: { authorization, ...(range && { range }) } });

describe('an approved release', () => {
  it('reaches a device that has joined, which checks it, and continues a download that was cut off', async () => {
    expect(await approve(published('2.0.0'))).toEqual([expect.stringMatching(/^fetching device-agent-2\.0\.0\.tgz/)]);
    const { source } = await gatewayOf(root);
    const { release } = await findRelease(source, NEWEST, GIVEN, NO_HISTORY);
    const [file] = release.files;
    if (file === undefined) throw new Error('the release has a file');
    const target = join(temporaryFolder(), file.name);
    writeFileSync(`${target}.part`, CONTENT.subarray(0, 1_000_001));
    await download(source, file, target);
    expect(readFileSync(target).equals(CONTENT)).toBe(true);
    expect(await asks(file.name, undefined, 'bytes=2999990-')).toMatchObject({
      status: 206,
      headers: { 'content-range': 'bytes 2999990-2999999/3000000', 'content-length': '10' },
    });
    expect((await asks(file.name, undefined, 'bytes=3000000-')).status).toBe(416);
  });

  it('is for agents of this gateway only, and nothing beside it can be read', async () => {
    await approve(published('2.0.0'));
    const { token } = await gateway.store.database.write(() => issueApiKey(gateway.store, {}));
    const wrong = ['', 'Bearer ', 'Bearer guess', `Bearer ${token}`];
    for (const authorization of wrong) expect((await asks('manifest.json', authorization)).status).toBe(403);
    for (const name of ['manifest-2.0.1.json', 'manifest-beta.json', 'history.json', '..%2F..%2Fgateway.db']) {
      expect([name, (await asks(name)).status]).toEqual([name, 404]);
    }
    expect((await asks('manifest.json')).status).toBe(200);
  });

  it('is offered until it is removed; a device that has it then stays on it', async () => {
    await approve(published('1.9.0'));
    await approve(published('2.0.0'));
    const { source } = await gatewayOf(root);
    const first = await findRelease(source, NEWEST, GIVEN, NO_HISTORY);
    expect(first.release.version).toBe('2.0.0');
    expect(await removeRelease(gateway.dataDir, '2.0.0', async () => {})).toMatchObject({ version: '2.0.0' });
    const { release } = await findRelease(source, NEWEST, GIVEN, first.history);
    const choice = { installed: '2.0.0', release, to: null, automatic: null };
    expect(whySettled(choice, first.history)).toBe('version 2.0.0 is installed, and newer than 1.9.0');
  });

  it('is fetched only as far as it is missing, when it is approved again', async () => {
    const folder = published('2.0.0');
    await approve(folder);
    expect(await approve(folder)).toEqual([]);
    truncateSync(join(releasesIn(gateway.dataDir), '2.0.0', 'device-agent-2.0.0.tgz'), 5);
    expect(await approve(folder)).toHaveLength(1);
  });
});

describe('a gateway that somebody has taken over', () => {
  it('can offer no manifest that the publisher has not signed, and no other file', async () => {
    await approve(published('2.0.0'));
    const folder = join(releasesIn(gateway.dataDir), '2.0.0');
    const { source } = await gatewayOf(root);
    const { release } = await findRelease(source, NEWEST, GIVEN, NO_HISTORY);
    const [file] = release.files;
    if (file === undefined) throw new Error('the release has a file');
    writeFileSync(join(folder, file.name), Buffer.alloc(CONTENT.length, 'malware '));
    const target = join(temporaryFolder(), file.name);
    await expect(download(source, file, target)).rejects.toThrow(/is not the file that was signed/);
    const own = signedManifest({ ...release, version: '3.0.0' }, [generateKeyPairSync('ed25519').privateKey]);
    writeFileSync(join(folder, 'manifest.json'), own);
    await expect(findRelease(source, NEWEST, GIVEN, NO_HISTORY)).rejects.toThrow(
      /no key that this installation trusts/,
    );
  });
});

describe('approving', () => {
  it('refuses a release without a trusted signature, and one with another file, and then offers nothing', async () => {
    const unsigned = published('2.0.0', CONTENT, [generateKeyPairSync('ed25519').privateKey]);
    await expect(approve(unsigned)).rejects.toThrow(/no key that this installation trusts/);
    const other = published('2.0.0');
    writeFileSync(join(other, 'device-agent-2.0.0.tgz'), Buffer.alloc(CONTENT.length, 'malware '));
    await expect(approve(other)).rejects.toThrow(/is not the file that was signed/);
    expect((await asks('manifest.json')).status).toBe(404);
  });

  it('refuses an older release than one that was approved before, from the same publisher', async () => {
    await approve(published('2.1.0'));
    await expect(approve(published('2.0.0'))).rejects.toThrow(/but 2\.1\.0 of .* was seen before/);
  });
});

describe('downloads', () => {
  /** Begins a download, and reads none of it. */
  async function begin(device: string, name: string): Promise<{ status: number; retryAfter: string | undefined }> {
    const { hostname, port } = new URL(gateway.apiUrl);
    return new Promise((resolve, reject) => {
      const asked = request({
        ...{ host: '127.0.0.1', port, servername: hostname, path: `/releases/${name}`, agent: false },
        headers: { host: `${hostname}:${port}`, authorization: `Bearer ${authtokenOf(device)}` },
        rejectUnauthorized: false,
      });
      asked.on('error', reject).on('response', (response) => {
        onTestFinished(() => void response.on('error', () => {}).destroy());
        resolve({ status: response.statusCode ?? 0, retryAfter: response.headers['retry-after'] });
      });
      asked.end();
    });
  }

  it('take turns: one of a device, eight of all, and others are told when to try again', async () => {
    const large = Buffer.alloc(30_000_000, 'large ');
    await approve(published('2.2.0', large));
    const name = 'device-agent-2.2.0.tgz';
    const devices = [root];
    for (let number = 2; number <= 9; number++) devices.push(await joinedDevice(`device-${number}`));
    expect((await begin(root, name)).status).toBe(200);
    expect(await begin(root, name)).toEqual({ status: 503, retryAfter: '15' });
    const others = await Promise.all(devices.slice(1).map((device) => begin(device, name)));
    expect(others.map(({ status }) => status).toSorted()).toEqual([...Array(7).fill(200), 503]);
    // Manifests are small, and what agents say about updates is, too.
    expect((await asks('manifest.json')).status).toBe(200);
    expect(await (await gatewayOf(root)).tell({ version: '2.2.0', state: 'wanted' })).toMatchObject({ decision: 'go' });
  });
});
