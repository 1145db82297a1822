import { createHash, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { publicKeyText, signedManifest } from '../../scripts/packages/release-manifest.js';
import { NO_PROXIES } from '../../src/lib/network/proxy-rules.ts';
import { fileFor, MAX_MANIFEST_BYTES, openRelease, type ReleaseFile } from '../../src/update/release.ts';
import { download, openSource, readManifest } from '../../src/update/release-source.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

const CONTENT = Buffer.alloc(300_000, 'program ');
const FILE: ReleaseFile = {
  kind: 'folder',
  architecture: 'any',
  name: 'device-agent-2.0.0-linux-any.tar.gz',
  size: CONTENT.length,
  sha256: createHash('sha256').update(CONTENT).digest('hex'),
};
const RELEASE = {
  version: '2.0.0',
  channel: 'stable',
  released: '2026-01-01T00:00:00.000Z',
  expires: '2026-02-01T00:00:00.000Z',
  security: null,
  files: [FILE],
  keys: { number: 0, keys: [] },
};

const newKey = (): KeyObject => generateKeyPairSync('ed25519').privateKey;
const [first, second, other] = [newKey(), newKey(), newKey()];
const TRUSTED = { number: 0, keys: [publicKeyText(first), publicKeyText(second)] };

describe('a signed manifest', () => {
  it('is read when one of the trusted keys has signed it', () => {
    for (const keys of [[first], [second], [other, second]]) {
      expect(openRelease(signedManifest(RELEASE, keys), TRUSTED, 'it').version).toBe('2.0.0');
    }
  });

  it('is rejected without a signature of a trusted key over exactly these bytes', () => {
    const good = JSON.parse(signedManifest(RELEASE, [first]));
    const changed = Buffer.from(JSON.stringify({ ...RELEASE, version: '3.0.0' })).toString('base64');
    const bad = {
      'another key': signedManifest(RELEASE, [other]),
      'another payload': JSON.stringify({ ...good, payload: changed }),
      'another key that claims to be a trusted one': JSON.stringify({
        ...good,
        signatures: [
          {
            key: publicKeyText(first),
            signature: JSON.parse(signedManifest(RELEASE, [other])).signatures[0].signature,
          },
        ],
      }),
      'no signature': JSON.stringify({ ...good, signatures: [] }),
      'no manifest': '<html>',
    };
    for (const [what, text] of Object.entries(bad)) {
      expect(() => openRelease(text, TRUSTED, 'it'), what).toThrow(/^release rejected: /);
    }
  });

  it('is rejected when it names files outside its folder, or of absurd sizes', () => {
    for (const change of [{ name: '../../etc/passwd' }, { name: '.hidden' }, { size: 1e12 }]) {
      const text = signedManifest({ ...RELEASE, files: [{ ...FILE, ...change }] }, [first]);
      expect(() => openRelease(text, TRUSTED, 'it'), JSON.stringify(change)).toThrow(/signed, but has another format/);
    }
  });

  it('has the file of an architecture, or says that it has none', () => {
    const release = openRelease(signedManifest(RELEASE, [first]), TRUSTED, 'it');
    expect(fileFor(release, 'folder', 'arm64').name).toBe(FILE.name);
    expect(() => fileFor(release, 'deb', 'arm64')).toThrow(/no file for this installation \(deb, arm64\)/);
  });
});

/** A mirror that answers each request with what the test says. */
async function mirror(answer: RequestListener) {
  const server = createServer(answer).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return openSource(`http://127.0.0.1:${(server.address() as AddressInfo).port}/releases`, NO_PROXIES);
}

describe('a file of a release', () => {
  it('comes from a folder', async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, FILE.name), CONTENT);
    await download(openSource(folder, NO_PROXIES), FILE, join(folder, 'fetched'));
    expect(readFileSync(join(folder, 'fetched'))).toEqual(CONTENT);
    await expect(readManifest(openSource(folder, NO_PROXIES), 'manifest.json')).rejects.toThrow(/no such file/);
  });

  it('that was cut off is completed by the next call, which asks only for the rest', async () => {
    const path = join(temporaryFolder(), 'fetched');
    const ranges: (string | undefined)[] = [];
    const source = await mirror((request, response) => {
      const { range } = request.headers;
      ranges.push(range);
      const from = Number(/^bytes=(\d+)-$/.exec(range ?? '')?.[1] ?? 0);
      if (from === 0) {
        response.writeHead(200, { 'content-length': CONTENT.length });
        response.write(CONTENT.subarray(0, 100_000));
        const isThere = () => existsSync(`${path}.part`) && statSync(`${path}.part`).size > 0;
        return void until(isThere, 'a part on the disk').then(() => response.destroy());
      }
      response.writeHead(206, { 'content-range': `bytes ${from}-${CONTENT.length - 1}/${CONTENT.length}` });
      return response.end(CONTENT.subarray(from));
    });
    await expect(download(source, FILE, path)).rejects.toThrow(/download interrupted.*repeat the command/);
    expect(existsSync(path)).toBe(false);
    await download(source, FILE, path);
    // More than the test has seen may have been on its way to the disk.
    const rest = expect.stringMatching(/^bytes=[1-9]\d*-$/);
    expect([readFileSync(path).equals(CONTENT), ranges]).toEqual([true, [undefined, rest]]);
  });

  it.each([
    ['has no end', /longer than signed/, Buffer.alloc(1 << 20, 'x')],
    ['has another content', /not the file that was signed/, Buffer.alloc(CONTENT.length, 'other')],
  ])('is rejected and deleted when it %s', async (_, problem, content) => {
    let sent = 0;
    const source = await mirror((_request, response) => {
      const more = () => {
        sent += content.length;
        if (content.length === CONTENT.length) return response.end(content);
        // A client that goes away ends it.
        if (!response.destroyed) response.write(content, more);
        return response;
      };
      more();
    });
    const path = join(temporaryFolder(), 'fetched');
    await expect(download(source, FILE, path)).rejects.toThrow(problem);
    expect([existsSync(path), existsSync(`${path}.part`), sent < 1 << 26]).toEqual([false, false, true]);
  });

  it('is not fetched from a page, nor a manifest that has no end', async () => {
    const endless = await mirror((_request, response) => {
      const more = () => !response.destroyed && response.write(Buffer.alloc(1 << 16), more);
      more();
    });
    await expect(readManifest(endless, 'manifest.json')).rejects.toThrow(`longer than ${MAX_MANIFEST_BYTES} bytes`);
    const broken = await mirror((_request, response) => response.writeHead(503).end());
    await expect(readManifest(broken, 'manifest.json')).rejects.toThrow(/status 503; check the address/);
  });

  it('comes over https, or from this machine', () => {
    for (const from of ['http://mirror.example.com/', 'ftp://mirror.example.com/', 'https://mirror.example.com/?a']) {
      expect(() => openSource(from, NO_PROXIES), from).toThrow(/no source of releases/);
    }
    expect(openSource('https://mirror.example.com/releases', NO_PROXIES).shown).toBe(
      'https://mirror.example.com/releases/',
    );
  });
});
