import { spawnSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { connect, createServer } from 'node:tls';
import { beforeEach, describe, expect, it } from 'vitest';
import { LocalCaIssuer } from '../../../../src/gateway/certificates/choose-issuer.ts';
import { type LocalCa, openLocalCa } from '../../../../src/gateway/certificates/local-ca/local-ca.ts';
import { CertificateCache } from '../../../../src/gateway/edge/tls/certificate-selection.ts';
import { OperatorError } from '../../../../src/lib/errors.ts';
import { listening } from '../../../support/loopback.ts';
import { programMissing, unless } from '../../../support/requirements.ts';
import { recordingLog, silentLog } from '../../../support/silent-log.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';

const DAY = 24 * 60 * 60 * 1000;
let dir: string;

beforeEach(() => {
  dir = temporaryFolder();
});

describe('openLocalCa', () => {
  it('creates a CA once, logs it and opens it again; only its owner can read the key', async () => {
    const { log, lines } = recordingLog();
    const first = await openLocalCa(dir, log);
    const second = await openLocalCa(dir, log);
    expect(lines).toMatchObject([{ msg: 'certificate authority created', ca: first.caFile }]);
    expect(second.caPem).toBe(first.caPem);
    expect(await readFile(first.caFile, 'utf8')).toBe(first.caPem);
    expect((await stat(join(dir, 'ca-key.pem'))).mode & 0o777).toBe(0o600);
    expect((await stat(first.caFile)).mode & 0o777).toBe(0o644);
    expect(new X509Certificate(first.caPem).ca).toBe(true);
  });

  it.each([
    ['ca.pem', 'garbage'],
    ['ca-key.pem', 'garbage'],
  ])('refuses a damaged %s with its name and advice', async (file, content) => {
    await openLocalCa(dir, silentLog);
    await writeFile(join(dir, file), content);
    const opening = openLocalCa(dir, silentLog);
    await expect(opening).rejects.toThrow(OperatorError);
    await expect(opening).rejects.toThrow(join(dir, file));
    await expect(opening).rejects.toThrow('restore it from a backup');
    expect(await readFile(join(dir, file), 'utf8')).toBe(content);
  });

  it('refuses a certificate that does not match the key', async () => {
    const other = temporaryFolder();
    const { caPem } = await openLocalCa(other, silentLog);
    await openLocalCa(dir, silentLog);
    await writeFile(join(dir, 'ca.pem'), caPem);
    await expect(openLocalCa(dir, silentLog)).rejects.toThrow('does not match the key');
  });

  it('refuses to start when only the key is missing', async () => {
    await openLocalCa(dir, silentLog);
    await rm(join(dir, 'ca-key.pem'));
    await expect(openLocalCa(dir, silentLog)).rejects.toThrow('ca-key.pem is missing');
  });

  it('continues after a power cut between writing the two files', async () => {
    await openLocalCa(dir, silentLog);
    await rm(join(dir, 'ca.pem'));
    const { caPem } = await openLocalCa(dir, silentLog);
    expect(new X509Certificate(caPem).ca).toBe(true);
  });

  it('renews a CA near its expiry, which clients with the old file still trust', async () => {
    const old = await openLocalCa(dir, silentLog);
    await openLocalCa(dir, silentLog, () => Date.now() + 8.5 * 365 * DAY);
    const renewed = await openLocalCa(dir, silentLog);
    expect(renewed.caPem).not.toBe(old.caPem);
    expect(await handshake(renewed, 'cam.localhost', old.caPem)).toBe('cam.localhost');
  });
});

it('issues with a CA that another program created', async () => {
  const own = await openLocalCa(dir, silentLog);
  const renamed = Buffer.from(
    new X509Certificate(own.caPem).raw.toString('latin1').replaceAll('device-agent', 'EXAMPLE-CORP'),
    'latin1',
  );
  await writeFile(own.caFile, new X509Certificate(renamed).toString());
  const { caPem, issue } = await openLocalCa(dir, silentLog);
  const leaf = new X509Certificate((await issue(['cam.localhost'])).cert);
  expect(leaf.issuer).toBe('CN=EXAMPLE-CORP local CA');
  expect(leaf.checkIssued(new X509Certificate(caPem))).toBe(true);
});

describe('issued certificates', () => {
  it('are accepted for their hostnames and addresses', async () => {
    const ca = await openLocalCa(dir, silentLog);
    const { cert } = await ca.issue(['cam.localhost', '127.0.0.1', '::1', '::ffff:10.1.2.3']);
    const leaf = new X509Certificate(cert);
    expect(leaf.checkHost('cam.localhost')).toBe('cam.localhost');
    expect(leaf.checkHost('other.localhost')).toBeUndefined();
    expect(leaf.checkIP('127.0.0.1')).toBe('127.0.0.1');
    expect(leaf.checkIP('::1')).toBe('::1');
    expect(leaf.checkIP('::ffff:10.1.2.3')).toBeDefined();
    expect(leaf.checkIssued(new X509Certificate(ca.caPem))).toBe(true);
    expect(leaf.ca).toBe(false);
    expect(await handshake(ca, 'cam.localhost')).toBe('cam.localhost');
  });

  it('are valid no longer than browsers allow, and start in the past', async () => {
    const { cert, renewAt } = await (await openLocalCa(dir, silentLog)).issue(['cam.localhost']);
    const { validFrom, validTo } = new X509Certificate(cert);
    expect(Date.parse(validTo) - Date.parse(validFrom)).toBeLessThanOrEqual(397 * DAY);
    expect(Date.now() - Date.parse(validFrom)).toBeGreaterThan(60_000);
    expect(renewAt).toBeLessThan(Date.parse(validTo));
  });

  it('issued in 1970 verify with a clock in 1970 and with the right time', async () => {
    const ca = await openLocalCa(dir, silentLog, () => 5000);
    const { cert, renewAt } = await ca.issue(['cam.localhost']);
    for (const pem of [ca.caPem, cert]) {
      const { validFrom, validTo } = new X509Certificate(pem);
      expect(Date.parse(validFrom)).toBe(0);
      expect(Date.parse(validTo)).toBeGreaterThan(Date.now());
    }
    expect(renewAt).toBeLessThan(Date.now());
    expect(await handshake(ca, 'cam.localhost')).toBe('cam.localhost');
  });

  it(
    'pass the strictest check of openssl, for all kinds of names and clocks',
    unless(programMissing('openssl', 'version')),
    async () => {
      const names = [['cam.localhost', '127.0.0.1'], ['::1'], [`${'a'.repeat(60)}.localhost`]];
      for (const now of [Date.now(), 5_000]) {
        const ca = await openLocalCa(dir, silentLog, () => now);
        for (const [at, some] of names.entries()) {
          const file = join(dir, `leaf-${at}.pem`);
          await writeFile(file, (await ca.issue(some)).cert);
          const { stdout } = spawnSync('openssl', [
            ...['verify', '-x509_strict', '-purpose', 'sslserver', '-attime', String(Math.ceil(now / 1_000))],
            ...['-CAfile', ca.caFile, file],
          ]);
          expect(String(stdout)).toBe(`${file}: OK\n`);
        }
      }
    },
  );

  it('support names that are too long for a subject', async () => {
    const name = `${'a'.repeat(60)}.${'b'.repeat(60)}.localhost`;
    const { cert } = await (await openLocalCa(dir, silentLog)).issue([name]);
    expect(new X509Certificate(cert).checkHost(name)).toBe(name);
  });
});

describe('CertificateCache', () => {
  it('issues one certificate for concurrent callers, and a new one when it is due', async () => {
    const ca = counting(await openLocalCa(dir, silentLog));
    let now = Date.now();
    const leaves = new CertificateCache(ca, 10, () => now);
    const all = await Promise.all(Array.from({ length: 50 }, () => leaves.leafFor('cam.localhost')));
    expect(new Set(all).size).toBe(1);
    expect(ca.issued).toEqual(['cam.localhost']);
    now += 380 * DAY;
    expect(await leaves.leafFor('cam.localhost')).not.toBe(all[0]);
  });

  it('issues a new one when the clock is set back before the last one is valid', async () => {
    let now = Date.now() + 3650 * DAY;
    const leaves = new CertificateCache(await openLocalCa(dir, silentLog, () => now), 10, () => now);
    await leaves.leafFor('cam.localhost');
    now -= 3650 * DAY;
    const { cert } = await leaves.leafFor('cam.localhost');
    expect(Date.parse(new X509Certificate(cert).validFrom)).toBeLessThan(now);
  });

  it('drops the least recently used certificate above its limit', async () => {
    const ca = counting(await openLocalCa(dir, silentLog));
    const leaves = new CertificateCache(ca, 2);
    for (const name of ['a.localhost', 'b.localhost', 'a.localhost', 'c.localhost', 'a.localhost', 'b.localhost']) {
      await leaves.leafFor(name);
    }
    expect(ca.issued).toEqual(['a.localhost', 'b.localhost', 'c.localhost', 'b.localhost']);
  });

  it('retries after a failure', async () => {
    const ca = await openLocalCa(dir, silentLog);
    let failures = 1;
    const flaky: LocalCa = {
      ...ca,
      issue: (names) => (failures-- > 0 ? Promise.reject(new Error('no entropy')) : ca.issue(names)),
    };
    const leaves = new CertificateCache(flaky, 2);
    await expect(leaves.leafFor('a.localhost')).rejects.toThrow('no entropy');
    await expect(leaves.leafFor('a.localhost')).resolves.toBeDefined();
  });
});

describe('LocalCaIssuer', () => {
  it('renews with a new key and a new validity period', async () => {
    let now = Date.now();
    const issuer = new LocalCaIssuer(await openLocalCa(dir, silentLog, () => now));
    const { signal } = new AbortController();
    const order = async () => {
      const issued = await issuer.issue({ domain: 'cam.example.com', privateKeyType: 'ecdsa' }, signal);
      return { ...issued, leaf: new X509Certificate(issued.certificatePem) };
    };
    const first = await order();
    now += 265 * DAY;
    const second = await order();
    expect(second.privateKeyPem).not.toBe(first.privateKeyPem);
    expect(Date.parse(second.leaf.validTo) - Date.parse(first.leaf.validTo)).toBe(265 * DAY);
  });
});

function counting(ca: LocalCa): LocalCa & { issued: string[] } {
  const issued: string[] = [];
  return {
    ...ca,
    issued,
    issue: (names) => {
      issued.push(...names);
      return ca.issue(names);
    },
  };
}

/** Connects as a client that only trusts this CA; resolves to the verified name. */
async function handshake(ca: LocalCa, name: string, trusted = ca.caPem): Promise<string> {
  const { cert, key } = await ca.issue([name]);
  const server = createServer({ cert, key });
  const port = await listening(server);
  const socket = connect({ host: '127.0.0.1', port, servername: name, ca: trusted });
  try {
    await once(socket, 'secureConnect');
    return (socket.getPeerCertificate().subjectaltname ?? '').replace('DNS:', '');
  } finally {
    socket.destroy();
    server.close();
  }
}
