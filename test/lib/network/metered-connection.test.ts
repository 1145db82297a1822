import { once } from 'node:events';
import { createServer, type Socket, type TcpNetConnectOpts } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { type ConnectionOptions, connect, createSecureContext, type TLSSocket } from 'node:tls';
import { beforeAll, expect, it, onTestFinished, vi } from 'vitest';
import { performHandshake } from '../../../src/lib/network/server-handshake.ts';
import { type Issued, issueCertificate } from '../../support/certificates.ts';
import { listening } from '../../support/loopback.ts';

let pair: Issued;
beforeAll(async () => {
  pair = await issueCertificate({ subject: 'CN=camera', ca: true });
});

interface Handshake {
  client: TLSSocket;
  errors: Error[];
  secured: Promise<TLSSocket | null>;
}

/** Begins a handshake in which the client may present certificates. */
async function begin(localAddress: string, chain = pair.certificatePem): Promise<Handshake> {
  const server = createServer();
  const port = await listening(server);
  const options: ConnectionOptions & TcpNetConnectOpts = {
    ...{ port, host: '127.0.0.1', localAddress, rejectUnauthorized: false },
    ...{ cert: chain, key: pair.privateKeyPem },
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
  const secureContext = createSecureContext({ cert: pair.certificatePem, key: pair.privateKeyPem });
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
  expect(errors).toMatchObject([{ message: 'certificates too long' }]);
});

it('a network whose certificates take long waits, and no other does', async () => {
  let [user, now] = [0, performance.now()];
  const processor = vi.spyOn(process, 'cpuUsage').mockImplementation(() => {
    user += 110_000;
    return { user, system: 0 };
  });
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
  onTestFinished(() => {
    processor.mockRestore();
    clock.mockRestore();
  });
  expect(await (await begin('127.0.0.7')).secured).not.toBeNull();
  let isServed = false;
  const { secured } = await begin('127.0.0.7');
  const waiting = secured.then(() => {
    isServed = true;
  });
  expect(await (await begin('127.0.0.8')).secured).not.toBeNull();
  expect(isServed).toBe(false);
  now += 1000;
  await waiting;
});
