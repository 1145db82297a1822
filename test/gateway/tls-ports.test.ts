import { once } from 'node:events';
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { startTestGateway, type TestGateway } from '../support/gateway.ts';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.close());

describe.each([
  ['the HTTPS port', () => gateway.httpsPort],
  ['the session port', () => gateway.sessionPort ?? 0],
])('%s', (_, port) => {
  async function openTls(options: ConnectionOptions): Promise<TLSSocket> {
    const socket = connect({ host: '127.0.0.1', port: port(), rejectUnauthorized: false, ...options });
    onTestFinished(() => void socket.destroy());
    socket.on('error', () => {});
    await once(socket, 'secureConnect');
    return socket;
  }
  const suite = async (...names: string[]) => {
    const socket = await openTls({ maxVersion: 'TLSv1.2', ciphers: names.join(':') });
    return socket.getCipher().name.replace(/-(?:ECDSA|RSA)-/, '-');
  };
  const both = (rest: string) => [`ECDHE-ECDSA-${rest}`, `ECDHE-RSA-${rest}`];

  it('prefers its own order of suites, but ChaCha20 for clients that do', async () => {
    expect(await suite(...both('AES128-GCM-SHA256'), ...both('AES256-GCM-SHA384'))).toBe('ECDHE-AES256-GCM-SHA384');
    expect(await suite(...both('CHACHA20-POLY1305'), ...both('AES256-GCM-SHA384'))).toBe('ECDHE-CHACHA20-POLY1305');
  });

  it.each([
    ['CBC', [...both('AES256-SHA384'), ...both('AES128-SHA')]],
    ['no forward secrecy', ['AES128-GCM-SHA256', 'AES256-GCM-SHA384']],
  ])('refuses TLS 1.2 with %s', async (_, names) => {
    await expect(suite(...names)).rejects.toThrow(/handshake failure/);
  });

  it('refuses to renegotiate', async () => {
    const socket = await openTls({ maxVersion: 'TLSv1.2' });
    const problem = await new Promise<Error | null>((resolve) => {
      socket.on('error', resolve);
      socket.renegotiate({}, resolve);
    });
    expect(problem?.message).toMatch(/no renegotiation/);
  });
});
