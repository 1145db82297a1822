import { createHash, X509Certificate } from 'node:crypto';
import { cp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { openLocalCa } from '../../../../src/gateway/certificates/local-ca/local-ca.ts';
import { recordingLog, silentLog } from '../../../support/silent-log.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';

const DAY = 24 * 60 * 60 * 1000;
let dir: string;

beforeEach(async () => {
  dir = temporaryFolder();
});

/** Opens the CA as the gateway does at its start. */
const open = (now?: number, log = silentLog) => openLocalCa(dir, log, now === undefined ? undefined : () => now);
const leafFor = async (name: string, now?: number) => (await open(now)).issue([name]);
const files = async () => (await readdir(join(dir, 'leaves'))).map((name) => join(dir, 'leaves', name));

describe('a certificate on disk', () => {
  it('is read again at the next start, and readable only by its owner', async () => {
    const first = await leafFor('cam.localhost');
    expect(await leafFor('cam.localhost')).toEqual(first);
    const [file = '', ...others] = await files();
    expect(others).toEqual([]);
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    expect((await stat(join(dir, 'leaves'))).mode & 0o777).toBe(0o700);
  });

  it('of a wildcard is read again', async () => {
    const first = await leafFor('*.site.example.com');
    expect(await leafFor('*.site.example.com')).toEqual(first);
    expect(new X509Certificate(first.cert).checkHost('cam.site.example.com')).toBeDefined();
  });

  it('is issued once for concurrent callers', async () => {
    const ca = await open();
    const leaves = await Promise.all(Array.from({ length: 10 }, () => ca.issue(['cam.localhost', '::1'])));
    expect(new Set(leaves.map(({ cert }) => cert)).size).toBe(1);
  });

  it('is not used for other names, even with some in common', async () => {
    const ca = await open();
    const two = await ca.issue(['localhost', '127.0.0.1']);
    expect((await ca.issue(['localhost'])).cert).not.toBe(two.cert);
    expect(await ca.issue(['localhost', '127.0.0.1'])).toEqual(two);
  });

  it('is issued again when it is due or not valid yet', async () => {
    const first = await leafFor('cam.localhost');
    const renewed = await leafFor('cam.localhost', first.renewAt);
    expect(renewed.renewAt).toBeGreaterThan(first.renewAt);
    expect(await leafFor('cam.localhost', first.renewAt + DAY)).toEqual(renewed);
    const early = await leafFor('cam.localhost', first.renewAt - 2 * DAY);
    expect(Date.parse(new X509Certificate(early.cert).validFrom)).toBeLessThan(first.renewAt - 2 * DAY);
    expect(await files()).toHaveLength(1);
  });

  it('is kept beside the one for 1970 on a device that always starts in 1970', async () => {
    const early = await leafFor('cam.localhost', 5_000);
    const right = await leafFor('cam.localhost');
    expect(early.renewAt).toBeLessThan(Date.now());
    expect(await leafFor('cam.localhost', 9_000)).toEqual(early);
    expect(await leafFor('cam.localhost')).toEqual(right);
  });

  it.each([
    ['garbage', () => 'garbage'],
    ['nothing', () => ''],
    ['half of it', (text: string) => text.slice(0, text.length / 2)],
    ['a certificate that is torn', (text: string) => text.replace(/M[\s\S]{100}/, 'AAAA')],
  ])('that is damaged (%s) is issued again and logged', async (_, damage) => {
    const first = await leafFor('cam.localhost');
    const [file = ''] = await files();
    await writeFile(file, damage(await readFile(file, 'utf8')));
    const { log, lines } = recordingLog();
    const second = await (await open(undefined, log)).issue(['cam.localhost']);
    expect(second.cert).not.toBe(first.cert);
    expect(lines).toEqual([expect.objectContaining({ file, msg: expect.stringMatching('unusable') })]);
    expect(await leafFor('cam.localhost')).toEqual(second);
  });

  it('with the key of another one is issued again', async () => {
    const first = await leafFor('cam.localhost');
    const other = await leafFor('other.localhost');
    for (const file of await files()) await writeFile(file, first.cert + other.key);
    expect((await leafFor('cam.localhost')).cert).not.toBe(first.cert);
  });

  it('for other names in the same file is not used', async () => {
    await leafFor('cam.localhost');
    const [camera = ''] = await files();
    await leafFor('door.localhost');
    const door = (await files()).find((file) => file !== camera) ?? '';
    await cp(camera, door);
    expect(new X509Certificate((await leafFor('door.localhost')).cert).checkHost('door.localhost')).toBeDefined();
  });

  it('is kept beside another one whose file would be the same', async () => {
    const first = await leafFor('cam.localhost');
    const [file = ''] = await files();
    const others = Array.from({ length: 40_000 }, (_, at) => `door-${at}.localhost`).filter((name) =>
      createHash('sha256')
        .update(JSON.stringify([true, name]))
        .digest('hex')
        .startsWith(basename(file, '.pem')),
    );
    const second = await leafFor(others[0] ?? '');
    expect(await leafFor('cam.localhost')).toEqual(first);
    expect(await leafFor(others[0] ?? '')).toEqual(second);
    expect(await files()).toHaveLength(2);
  });

  it('of a replaced CA is issued again', async () => {
    const first = await leafFor('cam.localhost');
    await Promise.all(['ca.pem', 'ca-key.pem'].map((name) => rm(join(dir, name))));
    const ca = await open();
    const { cert } = await ca.issue(['cam.localhost']);
    expect(cert).not.toBe(first.cert);
    expect(new X509Certificate(cert).verify(new X509Certificate(ca.caPem).publicKey)).toBe(true);
  });

  it('that cannot be written is issued and logged', async () => {
    const { log, lines } = recordingLog();
    const ca = await open(undefined, log);
    await writeFile(join(dir, 'leaves'), 'in the way');
    expect(new X509Certificate((await ca.issue(['cam.localhost'])).cert).checkHost('cam.localhost')).toBeDefined();
    expect(lines.at(-1)?.msg).toMatch('not saved');
  });
});
