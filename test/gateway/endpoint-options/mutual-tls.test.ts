import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import { Agent, type RequestOptions, request } from 'node:https';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { text } from 'node:stream/consumers';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import type { Session } from '@ngrok/ngrok';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Issued, issueCertificate } from '../../support/certificates.ts';
import { agentSession, startTestGateway, type TestGateway } from '../../support/gateway.ts';
import { askHttp2 } from '../../support/http2-client.ts';
import { listening } from '../../support/loopback.ts';
import { SilentLink } from '../sessions/session-gateway.ts';

let gateway: TestGateway;
let session: Session;
let upstream: Server;
let names = 0;
let ca: Issued;
let client: Issued;
let unknownClient: Issued;

beforeAll(async () => {
  gateway = await startTestGateway();
  session = await agentSession(gateway).connect();
  upstream = createServer((req, res) => res.end(JSON.stringify(req.headers)));
  await listening(upstream);
  ca = await issueCertificate({ subject: 'CN=Fleet CA', ca: true });
  const people = ['cam.example', 'www.example', 'ops@example.com'];
  client = await issueCertificate({ subject: 'CN=Jürgen\\, camera 7,O=Fleet', names: people, issuer: ca });
  unknownClient = await issueCertificate({
    subject: 'CN=unknownClient',
    issuer: await issueCertificate({ subject: 'CN=CA', ca: true }),
  });
});
afterAll(async () => {
  await session.close();
  await gateway.close();
  upstream.close();
});

/** Binds an endpoint that requires a certificate of one of two CAs. */
async function bind(owner = session): Promise<string> {
  const host = `m${++names}.localhost`;
  const other = await issueCertificate({ subject: 'CN=Other CA', ca: true });
  const listener = await owner
    .httpEndpoint()
    .domain(host)
    .mutualTlsca(Buffer.from(other.certificatePem))
    .mutualTlsca(Buffer.from(ca.certificatePem))
    .listen(false);
  listener.forward(`http://127.0.0.1:${(upstream.address() as AddressInfo).port}`).catch(() => {});
  return host;
}

interface GetOptions {
  as?: Issued;
  /** The name in the ClientHello, when it differs from the request's. */
  sni?: string;
  headers?: Record<string, string>;
  agent?: Agent;
}

async function get(host: string, { as, sni = host, headers = {}, agent }: GetOptions = {}) {
  const options: RequestOptions = {
    ...{ host: '127.0.0.1', port: gateway.httpsPort, servername: sni, ca: gateway.sessionCa },
    ...(as && { cert: as.certificatePem, key: as.privateKeyPem }),
    headers: { host, ...headers },
    agent: agent ?? false,
  };
  const res = await new Promise<IncomingMessage>((resolve, reject) => {
    request(options, resolve).on('error', reject).end();
  });
  const { socket } = res;
  return { status: res.statusCode, headers: res.headers, body: await text(res), socket: socket as TLSSocket };
}

describe('mutualTlsca', () => {
  it('accepts clients with a certificate of the CAs, and sends the upstream its subject', async () => {
    const { status, body } = await get(await bind(), { as: client });
    expect(status).toBe(200);
    const { 'ngrok-mtls-subject-cn': name, ...seen } = JSON.parse(body);
    expect(Buffer.from(name, 'latin1').toString()).toBe('Jürgen, camera 7');
    expect(seen).toMatchObject({
      'ngrok-mtls-subject-alt-name-dns': 'cam.example, www.example',
      'ngrok-mtls-email-addresses': 'ops@example.com',
      'ngrok-mtls-serial-number': '0a1b2c',
    });
  });

  it('aborts the handshake of all other clients', async () => {
    const host = await bind();
    await expect(get(host)).rejects.toThrow(/certificate required|ECONNRESET|socket hang up|disconnected/);
    await expect(get(host, { as: unknownClient })).rejects.toThrow(/ECONNRESET|socket hang up|disconnected|alert/);
  });

  it.each(['Ngrok-Mtls-Subject-Cn', 'Ngrok_Mtls-Subject_CN'])('removes %s when clients send it', async (name) => {
    const { body } = await get(await bind(), { as: client, headers: { [name]: 'root' } });
    expect(body).not.toContain('root');
  });

  it('cannot be bypassed through another name', async () => {
    const [host, other] = [await bind(), 'open.localhost'];
    const listener = await session.httpEndpoint().domain(other).listen(false);
    listener.forward(`http://127.0.0.1:${(upstream.address() as AddressInfo).port}`).catch(() => {});
    expect((await get(other)).status).toBe(200);
    expect((await get(host, { sni: other, as: client })).status).toBe(421);
    const { status, body } = await get(other, { headers: { 'ngrok-mtls-subject-cn': 'x' } });
    expect([status, JSON.parse(body)['ngrok-mtls-subject-cn']]).toEqual([200, 'x']);
  });

  it('resumes only sessions that began with a certificate', async () => {
    const host = await bind();
    const agent = new Agent({ maxCachedSessions: 10 });
    expect((await get(host, { as: client, agent })).status).toBe(200);
    const second = await get(host, { as: client, agent });
    expect([second.status, second.socket.isSessionReused()]).toEqual([200, true]);
    expect(JSON.parse(second.body)['ngrok-mtls-serial-number']).toBe('0a1b2c');
    agent.destroy();
  });

  it('adds the subject to HTTP/2 requests, too, and rejects those for another name', async () => {
    const [host, other] = [await bind(), await bind()];
    const socket = connectTls({
      ...{ host: '127.0.0.1', port: gateway.httpsPort, servername: host, ca: gateway.sessionCa },
      ...{ cert: client.certificatePem, key: client.privateKeyPem, ALPNProtocols: ['h2'] },
    });
    const connection = connectHttp2(`https://${host}`, { createConnection: () => socket });
    const { headers, body } = await askHttp2(connection, {});
    expect([headers[':status'], JSON.parse(body)['ngrok-mtls-serial-number']]).toEqual([200, '0a1b2c']);
    expect((await askHttp2(connection, { ':authority': other })).headers[':status']).toBe(421);
    connection.close();
  });

  it('stays in force when the agent reconnects', async () => {
    const link = await SilentLink.to(gateway.sessionPort);
    const builder = agentSession(gateway, `127.0.0.1:${link.port}`).handleDisconnection(() => true);
    const reconnecting = await builder.connect();
    const host = await bind(reconnecting);
    const removed = once(gateway.endpoints, 'removed');
    link.cut();
    await removed;
    if (!gateway.endpoints.lookup('https', host)) await once(gateway.endpoints, 'added');
    expect((await get(host, { as: client })).status).toBe(200);
    await expect(get(host)).rejects.toThrow();
    await reconnecting.close();
  });

  it('is refused without a CA certificate, and without TLS', async () => {
    const of = (pem: string) => session.httpEndpoint().mutualTlsca(Buffer.from(pem));
    await expect(of('no certificate').listen(false)).rejects.toThrow('contains 0 PEM certificates');
    await expect(of(client.certificatePem).listen(false)).rejects.toThrow('is not a CA certificate');
    await expect(of(ca.certificatePem).scheme('HTTP').listen(false)).rejects.toThrow('needs TLS');
    const internal = of(ca.certificatePem).domain('cam.internal').binding('internal');
    await expect(internal.listen(false)).rejects.toThrow('internal');
  });

  it('must be the same for all endpoints of a pool', async () => {
    const host = `m${++names}.localhost`;
    const other = await issueCertificate({ subject: 'CN=Other CA', ca: true });
    const of = (...authorities: Issued[]) => {
      const builder = session.httpEndpoint().domain(host).poolingEnabled(true);
      for (const { certificatePem } of authorities) builder.mutualTlsca(Buffer.from(certificatePem));
      return builder.listen(false);
    };
    await of(ca);
    for (const different of [[], [other], [ca, other]]) {
      await expect(of(...different)).rejects.toThrow('must name the same certificate authorities');
    }
    const listener = await of(ca);
    expect(gateway.endpoints.list().filter((endpoint) => endpoint.host === host)).toHaveLength(2);
    await listener.close();
  });
});

describe('mutualTlsca of a tls endpoint', () => {
  it('requires the certificate in the handshake', async () => {
    const echo = createTcpServer((socket) => socket.pipe(socket));
    await listening(echo);
    const host = 'mtls.localhost';
    const server = await issueCertificate({ subject: `CN=${host}`, names: [host], issuer: ca });
    const listener = await session
      .tlsEndpoint()
      .domain(host)
      .termination(Buffer.from(server.certificatePem), Buffer.from(server.privateKeyPem))
      .mutualTlsca(Buffer.from(ca.certificatePem))
      .listen(false);
    listener.forward(`tcp://127.0.0.1:${(echo.address() as AddressInfo).port}`).catch(() => {});
    const connectAs = (as?: Issued) =>
      connectTls({
        ...{ host: '127.0.0.1', port: gateway.httpsPort, servername: host, ca: ca.certificatePem },
        ...(as && { cert: as.certificatePem, key: as.privateKeyPem }),
      });
    const known = connectAs(client);
    known.end('hello');
    expect(await text(known)).toBe('hello');
    for (const certificate of [unknownClient, undefined]) {
      const unknown = connectAs(certificate);
      unknown.end('hello');
      // With or without an alert.
      expect(await text(unknown).catch(() => '')).toBe('');
    }
    echo.close();
  });

  it('is refused when the edge does not terminate TLS', async () => {
    const builder = session.tlsEndpoint().domain('passing.localhost').mutualTlsca(Buffer.from(ca.certificatePem));
    await expect(builder.listen(false)).rejects.toThrow('TLSTermination');
  });
});
