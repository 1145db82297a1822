import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect as connectPlainly, createServer, type Server, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { type ConnectionOptions, connect, createServer as createTlsServer, type TLSSocket } from 'node:tls';
import type { Session, TlsListenerBuilder } from '@ngrok/ngrok';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { type Issued, issueCertificate } from '../../../support/certificates.ts';
import { agentSession, startTestGateway, type TestGateway } from '../../../support/gateway.ts';
import { helloOf } from '../../../support/tls-records.ts';

/** Endpoints of the protocol tls, with the real SDK and upstreams with and without TLS. */
let gateway: TestGateway;
let session: Session;
/** Sends a greeting, then echoes. */
let plain: Server;
/** The same, with its own certificate. */
let secure: Server;
let own: Issued;
const closing: Server[] = [];
let names = 0;
let host: string;

beforeAll(async () => {
  gateway = await startTestGateway();
  session = await agentSession(gateway).connect();
  own = await issueCertificate({ subject: 'CN=device', names: ['device.example'] });
  plain = await listening(createServer({ allowHalfOpen: true }, greet));
  secure = await listening(createTlsServer({ cert: own.certificatePem, key: own.privateKeyPem }, greet));
});
afterAll(async () => {
  await session.close();
  await gateway.close();
  for (const server of closing) server.close();
});
beforeEach(() => {
  host = `t${++names}.localhost`;
});

function greet(socket: Socket): void {
  socket.on('error', () => {});
  socket.write('hello ');
  socket.pipe(socket);
}

async function listening<S extends Server>(server: S): Promise<S> {
  closing.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server;
}

const addressOf = (server: Server) => `127.0.0.1:${(server.address() as AddressInfo).port}`;

/** Binds the test's host and forwards it. */
async function bind(
  upstream: string,
  setUp: (builder: TlsListenerBuilder) => unknown = () => {},
): Promise<() => Promise<void>> {
  const builder = session.tlsEndpoint().domain(host).verifyUpstreamTls(false);
  setUp(builder);
  const listener = await builder.listen(false);
  listener.forward(upstream).catch(() => {});
  return () => listener.close();
}
const withPolicy =
  (...actions: object[]) =>
  (builder: TlsListenerBuilder) =>
    builder.trafficPolicy(JSON.stringify({ on_tcp_connect: [{ actions }] }));
const terminate = (config: object = {}) => ({ type: 'terminate-tls', config });

/** Opens a TLS connection. */
async function openTls(options: ConnectionOptions = {}): Promise<TLSSocket> {
  const target = { host: '127.0.0.1', port: gateway.httpsPort, servername: host, rejectUnauthorized: false };
  const socket = connect({ ...target, ...options });
  onTestFinished(() => void socket.destroy());
  await once(socket, 'secureConnect');
  return socket;
}
async function exchange(socket: TLSSocket): Promise<string> {
  socket.end('me');
  return text(socket);
}
const isOf = (socket: TLSSocket, { certificatePem }: Issued) =>
  socket.getPeerX509Certificate()?.fingerprint256 === new X509Certificate(certificatePem).fingerprint256;

describe('TLS that passes through', () => {
  it.each([['tcp'], ['tls']])('reaches a %s:// upstream unchanged', async (scheme) => {
    await bind(`${scheme}://${addressOf(secure)}`);
    const socket = await openTls();
    expect(isOf(socket, own)).toBe(true);
    expect(await exchange(socket)).toBe('hello me');
  });

  it('exposes only its ClientHello to the policy', async () => {
    const policy = (name: string) => (builder: TlsListenerBuilder) => {
      const expressions = [`conn.tls.sni == '${name}' && conn.tls.version == ''`];
      builder.trafficPolicy(JSON.stringify({ on_tcp_connect: [{ expressions, actions: [{ type: 'deny' }] }] }));
    };
    const close = await bind(`tcp://${addressOf(secure)}`, policy(host));
    await expect(openTls()).rejects.toThrow();
    await close();
    await bind(`tcp://${addressOf(secure)}`, policy('other.localhost'));
    expect(await exchange(await openTls())).toBe('hello me');
  });

  it('follows the PROXY header that the upstream asks for', async () => {
    const seen = await listening(createServer());
    await bind(`tcp://${addressOf(seen)}`, (builder) => builder.proxyProto('1'));
    const hello = await helloOf({ servername: host });
    // The SDK waits for more when what it reads together with the header ends like this.
    hello.write('\r', hello.length - 1);
    const client = connectPlainly(gateway.httpsPort, '127.0.0.1').on('error', () => {});
    onTestFinished(() => void client.destroy());
    client.write(hello);
    const [upstream] = (await once(seen, 'connection')) as [Socket];
    const [header] = (await once(upstream, 'data')) as [Buffer];
    expect(String(header)).toMatch(/^PROXY TCP4 127\.0\.0\.1 127\.0\.0\.1 \d+ \d+\r\n/);
    upstream.destroy();
  });

  it('ends when the upstream is unreachable, and when the endpoint goes offline', async () => {
    const close = await bind(`tcp://${addressOf(secure)}`);
    const open = await openTls();
    // A reset, or the agent's own end, whichever comes first.
    open.on('error', () => {}).resume();
    await Promise.all([new Promise((closed) => open.once('close', closed)), close()]);
    host = `t${++names}.localhost`;
    await bind('tcp://127.0.0.1:1');
    await expect(openTls()).rejects.toThrow();
  });
});

describe('TLS that the edge terminates', () => {
  it('presents the certificate that the agent has sent', async () => {
    const mine = await issueCertificate({ subject: `CN=${host}`, names: [host] });
    await bind(`tcp://${addressOf(plain)}`, (builder) =>
      builder.termination(Buffer.from(mine.certificatePem), Buffer.from(mine.privateKeyPem)),
    );
    const socket = await openTls();
    expect(isOf(socket, mine)).toBe(true);
    expect(await exchange(socket)).toBe('hello me');
  });

  it('presents the gateway’s own certificate when the policy terminates TLS', async () => {
    await bind(`tcp://${addressOf(plain)}`, withPolicy(terminate()));
    const socket = await openTls({ ca: gateway.sessionCa, rejectUnauthorized: true });
    expect(await exchange(socket)).toBe('hello me');
  });

  it('is started again by the agent for a TLS upstream', async () => {
    await bind(`tls://${addressOf(secure)}`, withPolicy(terminate()));
    const socket = await openTls({ ca: gateway.sessionCa, rejectUnauthorized: true });
    expect(await exchange(socket)).toBe('hello me');
  });

  it('presents the policy’s certificate rather than the agent’s', async () => {
    const [agents, policys] = await Promise.all([
      issueCertificate({ subject: 'CN=agent', names: [host] }),
      issueCertificate({ subject: 'CN=policy', names: [host] }),
    ]);
    const config = { server_certificate: policys.certificatePem, server_private_key: policys.privateKeyPem };
    await bind(`tcp://${addressOf(plain)}`, (builder) => {
      builder.termination(Buffer.from(agents.certificatePem), Buffer.from(agents.privateKeyPem));
      withPolicy(terminate(config))(builder);
    });
    expect(isOf(await openTls(), policys)).toBe(true);
  });

  it('uses only the versions that the policy allows', async () => {
    await bind(`tcp://${addressOf(plain)}`, withPolicy(terminate({ min_version: '1.3' })));
    await expect(openTls({ maxVersion: 'TLSv1.2' })).rejects.toThrow(/version/);
    expect((await openTls()).getProtocol()).toBe('TLSv1.3');
    host = `t${++names}.localhost`;
    await bind(`tcp://${addressOf(plain)}`, withPolicy(terminate({ max_version: '1.2' })));
    expect((await openTls()).getProtocol()).toBe('TLSv1.2');
  });

  it.each([
    ['require-and-verify', { fleet: true, other: false, none: false }],
    ['require-any', { fleet: true, other: true, none: false }],
    ['request', { fleet: true, other: true, none: true }],
  ])('demands a client’s certificate as the policy says: %s', async (strategy, allowed) => {
    const ca = await issueCertificate({ subject: 'CN=Fleet', ca: true });
    const fleet = await issueCertificate({ subject: 'CN=camera', issuer: ca });
    const other = await issueCertificate({ subject: 'CN=other' });
    const config = {
      mutual_tls_certificate_authorities: [ca.certificatePem],
      mutual_tls_verification_strategy: strategy,
    };
    await bind(`tcp://${addressOf(plain)}`, withPolicy(terminate(config)));
    const isAccepted = (as?: Issued) =>
      openTls(as && { cert: as.certificatePem, key: as.privateKeyPem })
        .then(exchange)
        .then(
          (answer) => answer === 'hello me',
          () => false,
        );
    expect({ fleet: await isAccepted(fleet), other: await isAccepted(other), none: await isAccepted() }).toEqual(
      allowed,
    );
  });

  it.each<[string, object[], (ca: string) => [(builder: TlsListenerBuilder) => unknown, object]]>([
    ['agent', [], (ca) => [(builder) => builder.mutualTlsca(Buffer.from(ca)), {}]],
    ['policy', [terminate()], (ca) => [() => {}, { mutual_tls_certificate_authorities: [ca] }]],
  ])(
    'demands the certificate that the %s asks for, also of clients forwarded to an internal endpoint',
    async (_, inner, demand) => {
      const ca = await issueCertificate({ subject: 'CN=Fleet', ca: true });
      const fleet = await issueCertificate({ subject: 'CN=camera', issuer: ca });
      const insider = session.tlsEndpoint().domain(`${host.split('.')[0]}.internal`);
      if (inner.length > 0) withPolicy(...inner)(insider);
      const inside = await insider.listen(false);
      inside.forward(`tcp://${addressOf(plain)}`).catch(() => {});
      const [setUp, config] = demand(ca.certificatePem);
      await bind(`tcp://${addressOf(plain)}`, (builder) => {
        setUp(builder);
        withPolicy(terminate(config), { type: 'forward-internal', config: { url: String(inside.url()) } })(builder);
      });
      await expect(openTls().then(exchange)).rejects.toThrow();
      const known = { cert: fleet.certificatePem, key: fleet.privateKeyPem };
      expect(await exchange(await openTls(known))).toBe('hello me');
    },
  );

  it('is refused with a policy that names an unknown certificate authority', async () => {
    const config = { mutual_tls_certificate_authorities: ['ca_32ELHbfllc7fdX99DEBe3QekZ6H'] };
    const bound = bind(`tcp://${addressOf(plain)}`, withPolicy(terminate(config)));
    await expect(bound).rejects.toThrow('no certificate authority has the id');
  });
});

it('an unbound name is not served by a TLS endpoint', async () => {
  const client = await openTls({ servername: 'unknown.localhost' });
  client.write('GET / HTTP/1.1\r\nHost: unknown.localhost\r\nConnection: close\r\n\r\n');
  expect(await text(client)).toContain('ERR_NGROK_3200');
});
