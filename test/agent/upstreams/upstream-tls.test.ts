import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import net from 'node:net';
import { join } from 'node:path';
import tls, { type TlsOptions } from 'node:tls';
import { describe, expect, it } from 'vitest';
import type { UpstreamTls } from '../../../src/agent/connectors/connector.ts';
import { connectUpstream } from '../../../src/agent/upstreams/connect-upstream.ts';
import { UpstreamGuard } from '../../../src/agent/upstreams/upstream-guard.ts';
import { checkCaFile, tlsOf } from '../../../src/agent/upstreams/upstream-tls.ts';
import { parseUpstream } from '../../../src/lib/network/upstream-address.ts';
import { parseUpstreamRules } from '../../../src/settings/upstream-rules.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { serving } from '../../support/loopback.ts';
import { selfSigned } from '../../support/self-signed.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const guard = new UpstreamGuard(parseUpstreamRules('loopback'), async () => [{ address: '127.0.0.1', family: 4 }]);
const anyName = { upstream_tls_verify: false } as const;

/** Connects, and says what is negotiated, or why it fails. */
async function attempt(
  port: number,
  options: UpstreamTls & { host_header?: string } = {},
  { host = '127.0.0.1', verifyTls = true, connectMs = 5_000 } = {},
): Promise<string> {
  const upstream = parseUpstream(`https://${host}:${port}`);
  try {
    const socket = await connectUpstream(upstream, { guard, verifyTls, connectMs, tls: tlsOf(upstream, options) });
    const version = socket instanceof tls.TLSSocket ? socket.getProtocol() : null;
    await once(socket.resume(), 'end');
    socket.destroy();
    return `connected with ${version}`;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** @returns the port of a TLS server, and the server names that it was asked for */
async function serveTls(options: TlsOptions) {
  const names: (string | false | null)[] = [];
  const server = tls.createServer(options, (socket) => {
    names.push(socket.servername);
    socket.on('error', () => {}).end();
  });
  server.on('tlsClientError', () => {});
  return { port: await serving(server), names };
}

function caFile(...certificates: string[]): string {
  const path = join(temporaryFolder(), 'ca.pem');
  writeFileSync(path, certificates.join('\n'));
  return path;
}

describe('an upstream with an old version of TLS', () => {
  const old = async (version: 'TLSv1' | 'TLSv1.1') =>
    serveTls({ ...(await selfSigned()), minVersion: version, maxVersion: version, ciphers: 'ALL:@SECLEVEL=0' });

  it.each([
    ['TLSv1', '1.0'],
    ['TLSv1.1', '1.1'],
  ] as const)('that speaks %s only is refused in words, and reached when that is allowed', async (version, name) => {
    const { port } = await old(version);
    expect(await attempt(port, anyName)).toBe(
      `speaks TLS ${name} only: allow it with upstream_tls_min_version ${name}, which is weak`,
    );
    expect(await attempt(port, { ...anyName, upstream_tls_min_version: name })).toBe(`connected with ${version}`);
    expect(await attempt(port, { upstream_tls_min_version: name })).toMatch(/^presents a self-signed certificate: /);
  });

  it('that is older than what is allowed is refused in words', async () => {
    const first = await old('TLSv1');
    expect(await attempt(first.port, { ...anyName, upstream_tls_min_version: '1.1' })).toBe(
      'speaks TLS 1.0 only: allow it with upstream_tls_min_version 1.0, which is weak',
    );
    const modern = await serveTls({ ...(await selfSigned()), maxVersion: 'TLSv1.2' });
    expect(await attempt(modern.port, { ...anyName, upstream_tls_min_version: '1.3' })).toBe(
      'speaks TLS 1.2 only: allow it with upstream_tls_min_version 1.2',
    );
  });

  it('still speaks the newest version that both know', async () => {
    const { port } = await serveTls(await selfSigned());
    expect(await attempt(port, { ...anyName, upstream_tls_min_version: '1.0' })).toBe('connected with TLSv1.3');
  });
});

describe('an upstream with weak cryptography', () => {
  it('that has RSA key exchange only is reached', async () => {
    const { port } = await serveTls({
      ...(await selfSigned('CN=printer', 2048)),
      maxVersion: 'TLSv1.2',
      ciphers: 'AES128-GCM-SHA256',
    });
    expect(await attempt(port, anyName)).toBe('connected with TLSv1.2');
  });

  it.each([
    ['ciphers', { ciphers: 'CAMELLIA128-SHA:@SECLEVEL=0' }],
    ['signatures', { sigalgs: 'RSA+SHA1', ciphers: 'ALL:@SECLEVEL=0' }],
  ])('that has outdated %s only is refused in words, and reached when that is allowed', async (_, options) => {
    const { port } = await serveTls({
      ...(await selfSigned('CN=printer', 2048)),
      maxVersion: 'TLSv1.2',
      ...options,
    });
    expect(await attempt(port, anyName)).toBe(
      'needs outdated ciphers of TLS: set upstream_tls_min_version to 1.0, which is weak',
    );
    expect(await attempt(port, { ...anyName, upstream_tls_min_version: '1.1' })).toBe('connected with TLSv1.2');
  });

  it('that has a certificate with a tiny key is refused in words, and reached when that is allowed', async () => {
    const weak = await selfSigned('CN=127.0.0.1', 768);
    const { port } = await serveTls({ ...weak, ciphers: 'ALL:@SECLEVEL=0' });
    const trusting = { upstream_tls_ca_file: caFile(weak.cert) };
    expect(await attempt(port, trusting)).toMatch(
      /^presents a certificate that has a key of 768 bits, which is too small: set upstream_tls_min_version to 1.0/,
    );
    expect(await attempt(port, { ...trusting, upstream_tls_min_version: '1.0' })).toMatch(/for another name|connected/);
  });

  it('that has only legacy renegotiation is refused in words', async () => {
    const hello = Buffer.concat([
      Buffer.from('160303002a02000026', 'hex'),
      Buffer.from('0303', 'hex'),
      Buffer.alloc(36),
    ]);
    hello.writeUInt16BE(0xc02f, 9 + 2 + 32 + 1);
    const port = await serving(
      net.createServer((socket) => void socket.on('error', () => {}).once('data', () => void socket.write(hello))),
    );
    expect(await attempt(port, anyName)).toBe(
      'needs the legacy renegotiation of TLS: set upstream_tls_min_version to 1.0, which is weak',
    );
  });
});

describe('the certificate of an upstream', () => {
  it('that is self-signed is refused in words, until it is in the file of CAs or not verified', async () => {
    const own = await selfSigned('CN=localhost');
    const { port } = await serveTls(own);
    const host = { host: 'localhost' };
    expect(await attempt(port, {}, host)).toBe(
      'presents a self-signed certificate: set upstream_tls_ca_file to a copy of it, or set upstream_tls_verify to false',
    );
    expect(await attempt(port, { upstream_tls_ca_file: caFile(own.cert) }, host)).toBe('connected with TLSv1.3');
    expect(await attempt(port, anyName, host)).toBe('connected with TLSv1.3');
  });

  it('is verified as its tunnel says, whatever the setting says', async () => {
    const { port } = await serveTls(await selfSigned());
    expect(await attempt(port, {}, { verifyTls: false })).toBe('connected with TLSv1.3');
    expect(await attempt(port, { upstream_tls_verify: true }, { verifyTls: false })).toMatch(/self-signed/);
  });

  it('of an unknown CA, for another name, expired or not valid yet is refused in words', async () => {
    const ca = await issueCertificate({ subject: 'CN=Plant CA', ca: true });
    const serve = async (options: object) => {
      const issued = await issueCertificate({
        subject: 'CN=x',
        issuer: ca,
        names: ['cam.lan', '10.0.0.7'],
        ...options,
      });
      return (await serveTls({ cert: issued.certificatePem, key: issued.privateKeyPem })).port;
    };
    const port = await serve({});
    const trusting = { upstream_tls_ca_file: caFile(ca.certificatePem) };
    expect(await attempt(port)).toBe(
      'presents a certificate of an unknown CA: CN=Plant CA has issued it; set upstream_tls_ca_file to the certificate of that CA, or set upstream_tls_verify to false',
    );
    expect(await attempt(port, trusting)).toBe(
      'presents a certificate for another name: it is for cam.lan and 1 more, not for 127.0.0.1; set upstream_tls_server_name to cam.lan, or set upstream_tls_verify to false',
    );
    for (const name of ['cam.lan', '10.0.0.7'])
      expect(await attempt(port, { ...trusting, upstream_tls_server_name: name })).toBe('connected with TLSv1.3');
    const named = { ...trusting, upstream_tls_server_name: 'cam.lan' };
    const past = { notBefore: new Date('2020-01-01T00:00:00Z'), notAfter: new Date('2021-02-03T00:00:00Z') };
    expect(await attempt(await serve(past), named)).toMatch(
      /^presents an expired certificate: it was valid until 2021-02-03; renew it/,
    );
    const future = { notBefore: new Date('2035-01-01T00:00:00Z') };
    expect(await attempt(await serve(future), named)).toMatch(
      /^presents a certificate that is not valid yet: it is valid from 2035-01-01; check the clock/,
    );
  });

  it('is verified with the CAs that the file has now', async () => {
    const [one, other] = await Promise.all([selfSigned(), selfSigned()]);
    const { port } = await serveTls(one);
    const path = caFile(other.cert);
    const trust = () => attempt(port, { upstream_tls_ca_file: path }, { host: 'localhost' });
    expect(await trust()).toMatch(/self-signed/);
    writeFileSync(path, one.cert);
    expect(await trust()).toBe('connected with TLSv1.3');
    writeFileSync(path, 'nothing');
    expect(await trust()).toBe('cannot be verified: upstream_tls_ca_file: the file has no certificate as PEM');
  });
});

it.each(['/dev/zero', '/', '/no/such.pem'])('a file of CAs such as %s is refused before it is read', async (path) => {
  await expect(checkCaFile({ upstream_tls_ca_file: path })).rejects.toMatchObject({ status: 400 });
});

describe('the server name', () => {
  it('that an upstream is asked for is its host, the one that is set, or the Host of one that is an address', async () => {
    const { port, names } = await serveTls(await selfSigned());
    await attempt(port, anyName, { host: 'cam.test' });
    await attempt(port, { ...anyName, upstream_tls_server_name: 'cam.lan' }, { host: 'cam.test' });
    await attempt(port, { ...anyName, host_header: 'cam.lan:8443' }, { host: 'cam.test' });
    await attempt(port, { ...anyName, host_header: 'cam.lan:8443' });
    await attempt(port, { ...anyName, host_header: 'rewrite' });
    await attempt(port, anyName);
    expect(names).toEqual(['cam.test', 'cam.lan', 'cam.test', 'cam.lan', false, false]);
  });
});

describe('an upstream that speaks no TLS', () => {
  it.each([
    [
      'answers HTTP',
      (socket: net.Socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'),
      /^does not speak TLS: forward to http:\/\/127/,
    ],
    ['greets', (socket: net.Socket) => socket.write('SSH-2.0-x\r\n'), /^does not speak TLS/],
    ['ends', (socket: net.Socket) => socket.end(), /^ends connections during the TLS handshake$/],
    ['resets', (socket: net.Socket) => socket.resetAndDestroy(), /^ends connections during the TLS handshake$/],
    ['waits', () => {}, /^does not answer the TLS handshake$/],
  ])('and %s is refused in words', async (_, answer, words) => {
    const port = await serving(
      net.createServer((socket) => {
        socket.on('error', () => {}).once('data', () => answer(socket));
        socket.once('close', () => socket.destroy());
      }),
    );
    expect(await attempt(port, anyName, { connectMs: 500 })).toMatch(words);
  });

  it('and refuses connections keeps the error of the system', async () => {
    const server = net.createServer();
    const port = await serving(server);
    server.close();
    expect(await attempt(port, anyName)).toContain('ECONNREFUSED');
  });
});

it('an upstream that requires another HTTP version or a certificate is refused in words', async () => {
  const own = await selfSigned();
  const http2 = await serveTls({ ...own, ALPNProtocols: ['h2'] });
  expect(await attempt(http2.port, anyName)).toBe(
    'does not speak the HTTP version of this tunnel: app_protocol sets it',
  );
  const asking = await serveTls({ ...own, requestCert: true, rejectUnauthorized: true, maxVersion: 'TLSv1.2' });
  expect(await attempt(asking.port, anyName)).toMatch(
    /^(?:refuses the TLS handshake: it may require a client|requires a client) certificate/,
  );
});
