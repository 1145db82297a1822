import { once } from 'node:events';
import { createServer, type Socket, type TcpNetConnectOpts } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { type ConnectionOptions, connect, createSecureContext, type SecureContext, type TLSSocket } from 'node:tls';
import { beforeAll, expect, it, onTestFinished } from 'vitest';
import { performHandshake } from '../../../src/lib/tls/server-handshake.ts';
import { TLS_SERVER_OPTIONS } from '../../../src/lib/tls/tls-options.ts';
import { type Issued, issueCertificate } from '../../support/certificates.ts';
import { COSTLY_KEYS, spkiOf } from '../../support/costly-keys.ts';
import { listening } from '../../support/loopback.ts';

let pair: Issued;
let secureContext: SecureContext;
beforeAll(async () => {
  pair = await issueCertificate({ subject: 'CN=camera', ca: true });
  const { certificatePem: cert, privateKeyPem: key } = await issueCertificate({ subject: 'CN=server' });
  secureContext = createSecureContext({ ...TLS_SERVER_OPTIONS, cert, key, sessionIdContext: 'clients' });
});

interface Handshake {
  client: TLSSocket;
  errors: Error[];
  secured: Promise<TLSSocket | null>;
}

/** Begins a handshake in which the client may present certificates. */
async function begin(
  localAddress: string,
  chain: string | null = pair.certificatePem,
  changes: Omit<ConnectionOptions, 'port'> = {},
): Promise<Handshake> {
  const server = createServer();
  const port = await listening(server);
  const options: ConnectionOptions & TcpNetConnectOpts = {
    ...{ port, host: '127.0.0.1', localAddress, rejectUnauthorized: false },
    ...(chain !== null && { cert: chain, key: pair.privateKeyPem }),
    ...changes,
  };
  const client = connect(options);
  client.on('error', () => {});
  const [accepted] = (await once(server, 'connection')) as [Socket];
  accepted.on('error', () => {});
  onTestFinished(() => {
    client.destroy();
    accepted.destroy();
    server.close();
  });
  const errors: Error[] = [];
  const demands = { secureContext, requestCert: true, rejectUnauthorized: false };
  const secured = performHandshake(accepted, demands, { onError: (error) => errors.push(error) });
  return { client, errors, secured };
}

it('a client that presents a certificate can send megabytes behind its handshake', async () => {
  const { client, secured } = await begin('127.0.0.5');
  client.end(Buffer.alloc(3_000_000, 'x'));
  const server = await secured;
  if (server === null) throw new Error('no handshake');
  expect(server.getPeerX509Certificate()?.subject).toBe('CN=camera');
  expect([server.remoteAddress, server.remotePort]).toEqual(['127.0.0.5', client.localPort]);
  expect(await buffer(server)).toHaveLength(3_000_000);
});

it('a client that presents more than 16 KiB of certificates gets no handshake', async () => {
  const { errors, secured } = await begin('127.0.0.6', `${pair.certificatePem}\n`.repeat(60));
  expect(await secured).toBeNull();
  expect(errors).toMatchObject([{ message: expect.stringContaining('certificates too long') }]);
});

const VERSIONS: readonly [string, ConnectionOptions][] = [
  ['TLS 1.2', { maxVersion: 'TLSv1.2' }],
  ['TLS 1.3', {}],
  ['TLS 1.3 with ChaCha20', { ciphers: 'TLS_CHACHA20_POLY1305_SHA256' }],
  ['TLS 1.3 with a second ClientHello', { ecdhCurve: 'P-521:P-384' }],
];

it.each(VERSIONS)('a client may present a usual certificate, or none: %s', async (_name, options) => {
  const presented = await (await begin('127.0.0.5', pair.certificatePem, options)).secured;
  expect(presented?.getPeerX509Certificate()?.subject).toBe('CN=camera');
  const none = await (await begin('127.0.0.5', null, options)).secured;
  expect(none).not.toBeNull();
  expect(none?.getPeerX509Certificate()).toBeUndefined();
});

it.each(VERSIONS)('a client resumes its session without certificates: %s', async (_name, options) => {
  const first = await begin('127.0.0.5', pair.certificatePem, options);
  const [session] = (await Promise.all([once(first.client, 'session'), first.secured]))[0] as [Buffer];
  const again = await begin('127.0.0.5', pair.certificatePem, { ...options, session });
  expect(await again.secured).not.toBeNull();
  expect(again.client.isSessionReused()).toBe(true);
});

it.each(VERSIONS)('a costly key of a client is refused before it is verified: %s', async (_name, options) => {
  for (const [, make] of COSTLY_KEYS) {
    const costly = await issueCertificate({ subject: 'CN=camera', publicKey: spkiOf(make()) });
    const chain = `${pair.certificatePem}\n${costly.certificatePem}`;
    const { errors, secured } = await begin('127.0.0.6', chain, options);
    expect(await secured).toBeNull();
    expect(errors).toMatchObject([{ message: expect.stringContaining('certificate 2 refused') }]);
  }
});

it.each(VERSIONS)('more than eight certificates of a client are refused: %s', async (_name, options) => {
  const { errors, secured } = await begin('127.0.0.6', `${pair.certificatePem}\n`.repeat(9), options);
  expect(await secured).toBeNull();
  expect(errors).toMatchObject([{ message: expect.stringContaining('too many certificates: more than 8') }]);
});
