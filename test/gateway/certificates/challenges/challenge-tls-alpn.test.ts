import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { crypto } from 'acme-client';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { answerTlsAlpn, TlsAlpnChallenges } from '../../../../src/gateway/certificates/challenges/challenges.ts';
import { listening } from '../../../support/loopback.ts';

const NAME = 'shop.example.test';

describe('TLS challenges', () => {
  let server: Server;
  let challenges: TlsAlpnChallenges;
  let takeBack: () => void;

  beforeEach(async () => {
    challenges = new TlsAlpnChallenges();
    const identifier = { type: 'dns', value: NAME };
    const authorization = { identifier, url: '', status: 'pending' as const, challenges: [] };
    const key = await crypto.createPrivateEcdsaKey();
    const [, certificate] = await crypto.createAlpnCertificate(authorization, 'token.thumbprint', key);
    takeBack = challenges.publish(NAME, certificate, key);
    server = createServer((socket) => {
      const context = challenges.context(NAME);
      if (context) answerTlsAlpn(socket, context);
      else socket.destroy();
    });
    await listening(server);
  });
  afterEach(() => new Promise((resolve) => server.close(resolve)));

  const port = () => (server.address() as AddressInfo).port;
  const validate = (protocols: string[]): TLSSocket =>
    connectTls({
      host: '127.0.0.1',
      port: port(),
      servername: NAME,
      ALPNProtocols: protocols,
      rejectUnauthorized: false,
    });

  it('are one handshake with the proof in its certificate', async () => {
    const socket = validate(['acme-tls/1']);
    await once(socket, 'secureConnect');
    expect(socket.alpnProtocol).toBe('acme-tls/1');
    const { raw } = socket.getPeerCertificate();
    expect(new X509Certificate(raw).subjectAltName).toBe(`DNS:${NAME}`);
    expect(crypto.isAlpnCertificateAuthorizationValid(new X509Certificate(raw).toString(), 'token.thumbprint')).toBe(
      true,
    );
    expect(await socket.toArray({ signal: AbortSignal.timeout(2000) })).toEqual([]);
  });

  it('are found by name in any letter case', () => {
    expect(challenges.context('SHOP.example.test')).toBeDefined();
    expect(challenges.context('other.example.test')).toBeUndefined();
    takeBack();
    expect(challenges.context(NAME)).toBeUndefined();
  });

  it('are refused to clients with any other protocol', async () => {
    const socket = validate(['h2']);
    await expect(once(socket, 'secureConnect')).rejects.toThrow(/no application protocol/i);
  });

  it('close a connection that sends no handshake', async () => {
    const socket = connect(port(), '127.0.0.1');
    socket.resume().on('error', () => {});
    socket.end('GET / HTTP/1.1\r\n\r\n');
    await once(socket, 'close', { signal: AbortSignal.timeout(2000) });
  });
});
