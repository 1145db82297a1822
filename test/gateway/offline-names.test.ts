import type { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { CertificateSelection } from '../../src/gateway/edge/tls/certificate-selection.ts';
import { ownDomainOf } from '../../src/gateway/endpoints/domain-names.ts';
import { startTestGateway, type TestGateway } from '../support/gateway.ts';
import { askHttp2, openHttp2 } from '../support/http2-client.ts';
import { selfSigned } from '../support/self-signed.ts';
import { silentLog } from '../support/silent-log.ts';

const BASE = 'tunnels.example.com';

describe('a name that never was online', () => {
  let gateway: TestGateway;
  beforeAll(async () => {
    gateway = await startTestGateway({ domain: BASE });
  });
  afterAll(() => gateway.close());

  it.each([`never.${BASE}`, BASE])('%s gets 404 over HTTP/2, with a certificate that clients accept', async (name) => {
    const session = await openHttp2({ httpsPort: gateway.httpsPort, ca: { caPem: gateway.sessionCa } }, name);
    onTestFinished(() => session.destroy());
    const { headers } = await askHttp2(session, {});
    expect([headers[':status'], headers['ngrok-error-code']]).toEqual([404, 'ERR_NGROK_3200']);
  });

  it('gets the default certificate and HTTP/1.1 when it belongs to someone else', async () => {
    const { subject, protocol } = await handshake('never.example.org');
    expect([subject, protocol]).toEqual(['CN=localhost', 'http/1.1']);
  });

  async function handshake(servername: string) {
    const target = { host: '127.0.0.1', port: gateway.httpsPort, servername, rejectUnauthorized: false };
    const socket = connect({ ...target, ALPNProtocols: ['h2', 'http/1.1'] });
    onTestFinished(() => void socket.destroy());
    await once(socket, 'secureConnect');
    const { subject } = socket.getPeerX509Certificate() as X509Certificate;
    return { subject, protocol: socket.alpnProtocol };
  }
});

describe('certificates for names that clients invent', () => {
  /** The names that the CA certified while clients requested a thousand names below a base domain. */
  async function issuedBelow(baseDomain: string, inventedName: (number: number) => string): Promise<string[]> {
    const issued: string[] = [];
    const pair = await selfSigned();
    const issue = async (names: readonly string[]) => {
      issued.push(...names);
      return { ...pair, renewAt: Number.POSITIVE_INFINITY };
    };
    const selection = new CertificateSelection({
      ca: { caFile: '', caPem: '', id: '', issue, certify: async () => '', among: () => null, all: [] },
      domains: { pairFor: () => null },
      defaultNames: ['default'],
      servedAs: () => null,
      isOwnName: () => false,
      domainOf: (name) => ownDomainOf(name, { baseDomain, cnameZone: '', acmeZone: '' }),
      log: silentLog,
    });
    for (let number = 0; number < 1000; number++) await selection.pairFor(inventedName(number));
    return issued;
  }

  it('are one wildcard for names directly below the base domain', async () => {
    expect(await issuedBelow(BASE, (number) => `n${number}.${BASE}`)).toEqual([`*.${BASE}`]);
  });

  it.each([
    ['deeper names', (number: number) => `n${number}.deep.${BASE}`],
    ['foreign names', (number: number) => `n${number}.example.org`],
  ])('are none for %s', async (_what, name) => {
    expect(await issuedBelow(BASE, name)).toEqual(['default']);
  });

  it('are few where clients reject a wildcard', async () => {
    const issued = await issuedBelow('localhost', (number) => (number % 2 ? `n${number}.localhost` : 'a b.localhost'));
    expect(issued).toHaveLength(65);
    expect(issued).toContain('n1.localhost');
    expect(issued).not.toContain('a b.localhost');
  });
});
