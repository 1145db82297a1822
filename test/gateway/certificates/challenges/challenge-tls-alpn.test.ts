import { createHash, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { challengeCertificate } from '../../../../src/gateway/certificates/acme/request-certificates.ts';
import { answerTlsAlpn, TlsAlpnChallenges } from '../../../../src/gateway/certificates/challenges/challenges.ts';
import { makePrivateKey } from '../../../../src/gateway/certificates/issuing/certificate-issuer.ts';
import { listening } from '../../../support/loopback.ts';

const NAME = 'shop.example.test';

describe('TLS challenges', () => {
  let server: Server;
  let challenges: TlsAlpnChallenges;
  let takeBack: () => void;

  beforeEach(async () => {
    challenges = new TlsAlpnChallenges();
    const key = await makePrivateKey('ecdsa');
    takeBack = challenges.publish(NAME, await challengeCertificate(NAME, 'token.thumbprint', key), key);
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
    // id-pe-acmeIdentifier, critical, with the digest as an octet string in an octet string (RFC 8737, section 3).
    const digest = createHash('sha256').update('token.thumbprint').digest('hex');
    expect(raw.toString('hex')).toContain(`06082b0601050507011f0101ff04220420${digest}`);
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
