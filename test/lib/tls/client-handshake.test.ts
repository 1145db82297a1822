import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createPlainServer } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { connect, createServer, type TlsOptions } from 'node:tls';
import { beforeAll, expect, it } from 'vitest';
import { connectInspected } from '../../../src/lib/tls/client-handshake.ts';
import { type Issued, issueCertificate } from '../../support/certificates.ts';
import { COSTLY_KEYS, madeUpRsa, pemOf, spkiOf } from '../../support/costly-keys.ts';
import { freePort, serving } from '../../support/loopback.ts';

let ca: Issued;
let leaf: Issued;
beforeAll(async () => {
  ca = await issueCertificate({ subject: 'CN=CA', ca: true });
  leaf = await issueCertificate({ subject: 'CN=leaf', names: ['127.0.0.1', 'cam.example.com'], issuer: ca });
});

function serverWith(options: TlsOptions, body: string | Buffer = 'hello'): Promise<number> {
  const tls = { cert: chain(leaf, ca), key: leaf.privateKeyPem, ...options };
  return serving(createServer(tls, (socket) => socket.on('error', () => {}).end(body)).on('tlsClientError', () => {}));
}

const chain = (...certificates: Issued[]) => certificates.map((each) => each.certificatePem).join('\n');

/** Connects, and reads until the server ends. */
async function read(port: number, { trusted = ca, host = '127.0.0.1', servername = '' } = {}) {
  const place = { host, port, ca: trusted.certificatePem, ...(servername !== '' && { servername }) };
  let ms = 0;
  const socket = connectInspected(place, { owner: 'test', charge: (each) => (ms += each) });
  const [, bytes] = await Promise.all([once(socket, 'secureConnect'), buffer(socket)]);
  return { bytes, address: socket.remoteAddress, ms };
}

const VERSIONS: readonly [string, TlsOptions][] = [
  ['TLS 1.2', { maxVersion: 'TLSv1.2' }],
  ['TLS 1.3 with AES-128', { ciphers: 'TLS_AES_128_GCM_SHA256' }],
  ['TLS 1.3 with AES-256', { ciphers: 'TLS_AES_256_GCM_SHA384' }],
  ['TLS 1.3 with ChaCha20', { ciphers: 'TLS_CHACHA20_POLY1305_SHA256' }],
  ['TLS 1.3 with another group', { ecdhCurve: 'P-384' }],
];

it.each(VERSIONS)(
  'a server with usual certificates is reached, and their time is charged: %s',
  async (_name, options) => {
    const body = Buffer.alloc(300_000, 'x');
    const { bytes, address, ms } = await read(await serverWith(options, body));
    expect(bytes.equals(body)).toBe(true);
    expect(address).toBe('127.0.0.1');
    expect(ms).toBeGreaterThan(0);
  },
);

it.each(VERSIONS)('certificates with costly keys are refused before they are verified: %s', async (_name, options) => {
  for (const [, make] of COSTLY_KEYS) {
    const costly = await issueCertificate({ subject: 'CN=CA', publicKey: spkiOf(make()) });
    const port = await serverWith({ ...options, cert: chain(leaf, costly) });
    await expect(read(port)).rejects.toThrow('certificate 2 refused: signatures with its key take too long to check');
  }
});

it.each(VERSIONS)('more than eight certificates are refused: %s', async (_name, options) => {
  const port = await serverWith({ ...options, cert: chain(leaf, ...Array<Issued>(8).fill(ca)) });
  await expect(read(port)).rejects.toThrow('too many certificates: more than 8');
});

it('more than 16 KiB of certificates are refused', async () => {
  const long = await issueCertificate({ subject: 'CN=long', publicKey: spkiOf(madeUpRsa(131_072)) });
  const port = await serverWith({ cert: chain(leaf, long) });
  await expect(read(port)).rejects.toThrow('certificates too long: more than 16384 bytes');
});

it('the certificate is verified', async () => {
  const port = await serverWith({});
  const other = await issueCertificate({ subject: 'CN=other', ca: true });
  await expect(read(port, { trusted: other })).rejects.toThrow('self-signed certificate in certificate chain');
  await expect(read(port, { servername: 'other.example.com' })).rejects.toMatchObject({
    code: 'ERR_TLS_CERT_ALTNAME_INVALID',
  });
});

it('a key exchange in a group of the server is refused', async () => {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const { certificatePem } = await issueCertificate({ subject: 'CN=leaf', publicKey: spkiOf(privateKey) });
  const rsa = { cert: certificatePem, key: pemOf(privateKey), dhparam: 'auto' };
  const port = await serverWith({ ...rsa, maxVersion: 'TLSv1.2', ciphers: 'DHE-RSA-AES128-GCM-SHA256' });
  const usual = connect({ port, rejectUnauthorized: false, host: '127.0.0.1' });
  await once(usual, 'secureConnect');
  usual.destroy();
  await expect(read(port)).rejects.toThrow('handshake failure');
});

it('a server that is unreachable, or does not speak TLS, is an error', async () => {
  await expect(read(await freePort())).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  const plain = await serving(createPlainServer((socket) => socket.on('error', () => {}).end('HTTP/1.1 400\r\n\r\n')));
  await expect(read(plain)).rejects.toThrow();
  const closing = await serving(createPlainServer((socket) => socket.destroy()));
  await expect(read(closing)).rejects.toThrow();
});
