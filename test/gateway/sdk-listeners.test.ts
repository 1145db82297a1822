import { once } from 'node:events';
import { chmod } from 'node:fs/promises';
import { createServer, type RequestListener, type Server } from 'node:http';
import { createServer as createHttp2Server } from 'node:http2';
import { createServer as createHttpsServer } from 'node:https';
import type { AddressInfo, Server as NetServer } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import ngrok, { type Config, type Listener, type Session } from '@ngrok/ngrok';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { issueCertificate } from '../support/certificates.ts';
import { freePorts } from '../support/free-ports.ts';
import { agentSession, getPublic, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { GatewayClient } from '../support/gateway-client.ts';
import { ask, askRaw } from '../support/http-request.ts';
import { selfSigned } from '../support/self-signed.ts';
import { sharedFolder } from '../support/temporary-folder.ts';

/** The SDK's examples: every way to listen and forward. */
let gateway: TestGateway;
let session: Session;
const folder = sharedFolder();
const home = process.cwd();

beforeAll(async () => {
  await chmod(folder, 0o700);
  // The SDK creates its sockets in the working folder.
  process.chdir(folder);
  gateway = await startTestGateway({ tcpPorts: await freePorts(4) });
  session = await agentSession(gateway).connect();
});
afterAll(async () => {
  await ngrok.kill();
  await session.close();
  await gateway.close();
  process.chdir(home);
});

const hello: RequestListener = (req, res) => res.end(`hello from ${req.headers.host}${req.url}`);

/** Starts a server at an address, by default a free port. */
async function start<S extends NetServer>(
  server: S,
  at: { port: number } | { path: string } = { port: 0 },
): Promise<S> {
  server.listen({ ...at, host: '127.0.0.1' });
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return server;
}

const portOf = (server: NetServer) => (server.address() as AddressInfo).port;
const socketFile = (name: string) => ({ path: join(folder, name) });

/** Requests a listener's upstream through the edge. */
async function request(listener: Listener, path = '/'): Promise<string> {
  const url = listener.url() ?? '';
  const { host } = new URL(url);
  const { status, body } = await getPublic(gateway, `${url}${path}`);
  expect(status).toBe(200);
  expect(body).toBe(`hello from ${host}${path}`);
  return body;
}

/** The `ngrok.forward` configuration for this gateway. */
function config(rest: Config): Config {
  const { authtoken, sessionAddress: server_addr, sessionCa: session_ca_cert } = gateway;
  return { authtoken, server_addr, session_ca_cert, ...rest };
}

describe('http listeners', () => {
  it('listen, then forward to a port, an address and a unix socket', async () => {
    const port = portOf(await start(createServer(hello)));
    const { path } = socketFile('listen.sock');
    await start(createServer(hello), { path });
    for (const address of [`localhost:${port}`, `http://127.0.0.1:${port}`, `unix:${path}`]) {
      const listener = await session.httpEndpoint().metadata('example').listen();
      listener.forward(address).catch(() => {});
      await request(listener, '/some/path');
      expect(listener.metadata()).toBe('example');
      await listener.close();
      expect((await getPublic(gateway, listener.url() ?? '')).status).toBe(404);
    }
  });

  it('listen and forward in one call', async () => {
    const { path } = socketFile('forward.sock');
    await start(createServer(hello), { path });
    const listener = await session.httpEndpoint().domain('at-once.localhost').listenAndForward(`unix:${path}`);
    expect(new URL(listener.url() ?? '').hostname).toBe('at-once.localhost');
    await request(listener);
    expect(gateway.endpoints.lookup('https', 'at-once.localhost')?.forwardsTo).toContain('forward.sock');
  });

  it('serve an HTTP server of this process that does not listen yet', async () => {
    const served = createServer(hello);
    const listener = await session.httpEndpoint().listenAndServe(served);
    onTestFinished(() => void served.close());
    await request(listener);
    const handed = createServer(hello);
    const bound = await session.httpEndpoint().listen();
    await once(handed.listen(bound), 'listening');
    onTestFinished(() => void handed.close());
    await request(bound);
    const linked = createServer(hello);
    const other = await session.httpEndpoint().listen(false);
    await ngrok.listen(linked, other);
    onTestFinished(() => void linked.close());
    await request(other);
  });

  it('have the requested scheme', async () => {
    const port = portOf(await start(createServer(hello)));
    const plain = await session.httpEndpoint().scheme('hTtP').listenAndForward(`http://127.0.0.1:${port}`);
    const { host, hostname, protocol } = new URL(plain.url() ?? '');
    expect(protocol).toBe('http:');
    expect((await ask(gateway.httpPort, hostname, { headers: { host } })).body).toBe(`hello from ${host}/`);
    const secure = await session.httpEndpoint().scheme('HTTPS').listenAndForward(`http://127.0.0.1:${port}`);
    const { hostname: name } = new URL(secure.url() ?? '');
    expect((await ask(gateway.httpPort, name, { path: '/x' })).headers.location).toBe(`${secure.url()}/x`);
    await request(secure);
  });

  it('forward to an HTTP/2 upstream', async () => {
    const upstreamServer = createHttp2Server();
    upstreamServer.on('stream', (stream) => {
      stream.respond({ ':status': 200 });
      stream.end('two');
    });
    const listener = await session.httpEndpoint().appProtocol('http2').listen();
    await ngrok.listen(upstreamServer, listener);
    onTestFinished(() => void upstreamServer.close());
    expect(await getPublic(gateway, listener.url() ?? '')).toMatchObject({ status: 200, body: 'two' });
    const other = session.httpEndpoint().appProtocol('http3').listen(false);
    await expect(other).rejects.toMatchObject({ errorCode: 'ERR_NGROK_15003' });
  });

  it('verify the certificate of a TLS upstream unless disabled', async () => {
    const { certificatePem: cert, privateKeyPem: key } = await issueCertificate({
      subject: 'CN=localhost',
      names: ['localhost'],
    });
    const port = portOf(await start(createHttpsServer({ cert, key }, hello)));
    const builder = () => session.httpEndpoint();
    const trusting = await builder().verifyUpstreamTls(false).listenAndForward(`https://localhost:${port}`);
    await request(trusting);
    const strict = await builder().listenAndForward(`https://localhost:${port}`);
    expect((await getPublic(gateway, strict.url() ?? '')).status).toBe(502);
  });
});

describe('ngrok.forward', () => {
  it('accepts a port and an address', async () => {
    const port = portOf(await start(createServer(hello)));
    for (const addr of [port, `http://127.0.0.1:${port}`]) await request(await ngrok.forward(config({ addr })));
    await request(await ngrok.connect(config({ addr: port, domain: 'connected.localhost' })));
    expect((await ngrok.listeners()).length).toBeGreaterThanOrEqual(3);
    const url = (await ngrok.getListenerByUrl(`https://connected.localhost:${gateway.httpsPort}`))?.url();
    expect(url).toBe(`https://connected.localhost:${gateway.httpsPort}`);
    await ngrok.disconnect(url);
    expect((await getPublic(gateway, url ?? '')).status).toBe(404);
  });

  it('accepts all options together', async () => {
    const { path } = socketFile('full.sock');
    const upstreamServer: Server = createServer((req, res) => {
      res.setHeader('x-res-nope', 'x');
      res.end(JSON.stringify(req.headers));
    });
    await start(upstreamServer, { path });
    const listener = await ngrok.forward(
      config({
        addr: `unix:${path}`,
        basic_auth: ['ngrok:online1line'],
        circuit_breaker: 0.1,
        compression: true,
        deny_user_agent: '^curl.*',
        ip_restriction_allow_cidrs: ['0.0.0.0/0'],
        ip_restriction_deny_cidrs: ['10.1.1.1/32'],
        metadata: 'example listener metadata from nodejs',
        proxy_proto: '',
        request_header_add: ['X-Req-Yup:true'],
        request_header_remove: ['X-Req-Nope'],
        response_header_add: ['X-Res-Yup:true'],
        response_header_remove: ['X-Res-Nope'],
        schemes: ['HTTP'],
        session_metadata: 'Online in One Line',
      }),
    );
    const { host, hostname } = new URL(listener.url() ?? '');
    const authorization = `Basic ${Buffer.from('ngrok:online1line').toString('base64')}`;
    const requestAs = (headers: Record<string, string>) =>
      askRaw(gateway.httpPort, hostname, { headers: { host, ...headers } });
    expect((await requestAs({ 'user-agent': 'wget' })).status).toBe(401);
    expect((await requestAs({ 'user-agent': 'curl/8', authorization })).status).toBe(403);
    const answer = await requestAs({
      'user-agent': 'wget',
      authorization,
      'x-req-nope': 'x',
      'accept-encoding': 'gzip',
    });
    expect(answer.headers).toMatchObject({ 'x-res-yup': 'true', 'content-encoding': 'gzip' });
    expect(answer.headers).not.toHaveProperty('x-res-nope');
    const plain = await requestAs({ 'user-agent': 'wget', authorization, 'x-req-nope': 'x' });
    expect(JSON.parse(plain.body.toString())).toMatchObject({ 'x-req-yup': 'true' });
    expect(JSON.parse(plain.body.toString())).not.toHaveProperty('x-req-nope');
  });

  it('rejects with the error code when an endpoint is refused', async () => {
    const refused = ngrok.forward(config({ addr: 9, oauth_provider: 'google' }));
    await expect(refused).rejects.toMatchObject({ errorCode: 'ERR_NGROK_365' });
  });
});

describe('tls listeners', () => {
  /** An upstream whose greeting tells where TLS was terminated. */
  async function greet(listener: Listener): Promise<[subject: string, greeting: string]> {
    const { hostname } = new URL(listener.url() ?? '');
    const socket = connectTls({
      host: '127.0.0.1',
      port: gateway.httpsPort,
      servername: hostname,
      rejectUnauthorized: false,
    });
    await once(socket, 'secureConnect');
    const { CN } = socket.getPeerCertificate().subject;
    socket.end();
    return [String(CN), await text(socket)];
  }

  it('pass the clients’ TLS through to the upstream', async () => {
    const certified = await selfSigned();
    const upstreamServer = await start(createTlsServer(certified, (socket) => socket.end('private')));
    const listener = await session.tlsEndpoint().domain('through.localhost').listen();
    listener.forward(`localhost:${portOf(upstreamServer)}`).catch(() => {});
    expect(await greet(listener)).toEqual(['localhost', 'private']);
  });

  it('terminate TLS at the edge with their own certificate', async () => {
    const { cert, key } = await selfSigned('CN=mine');
    const { path } = socketFile('tls.sock');
    const upstreamServer = createServer(hello);
    await start(upstreamServer, { path });
    const listener = await session
      .tlsEndpoint()
      .domain('mine.localhost')
      .termination(Buffer.from(cert), Buffer.from(key))
      .metadata('example')
      .listenAndForward(`unix:${path}`);
    const socket = connectTls({
      host: '127.0.0.1',
      port: gateway.httpsPort,
      servername: 'mine.localhost',
      ca: cert,
      checkServerIdentity: () => undefined,
    });
    socket.write('GET /tls HTTP/1.1\r\nHost: mine\r\nConnection: close\r\n\r\n');
    expect(await text(socket)).toContain('hello from mine/tls');
    expect(listener.proto()).toBe('tls');
  });
});

describe('tcp listeners', () => {
  it('carry any protocol, on a random or a requested port', async () => {
    const { path } = socketFile('tcp.sock');
    await start(createServer(hello), { path });
    const chosen = await session.tcpEndpoint().metadata('example').listen();
    chosen.forward(`unix:${path}`).catch(() => {});
    const { protocol, hostname, port } = new URL(chosen.url() ?? '');
    expect([protocol, hostname]).toEqual(['tcp:', 'localhost']);
    expect((await ask(Number(port), 'any')).body).toBe('hello from any/');
    await chosen.close();
    const again = await session.tcpEndpoint().remoteAddr(`localhost:${port}`).listenAndForward(`unix:${path}`);
    expect(again.url()).toBe(chosen.url());
    expect((await ask(Number(port), 'any')).body).toBe('hello from any/');
    const configured = await ngrok.forward(config({ addr: `unix:${path}`, proto: 'tcp' }));
    expect((await ask(Number(new URL(configured.url() ?? '').port), 'any')).body).toBe('hello from any/');
  });
});

describe('labelled listeners', () => {
  it('serve connections to an edge whose backend selects their labels', async () => {
    const client = await GatewayClient.of(gateway);
    const create = async (path: string, body: object) => (await client.call('POST', path, body)).body.id;
    const { path } = socketFile('labelled.sock');
    await start(createServer(hello), { path });
    const labels = { edge: 'edghts_example', site: 'a' };
    const backend_id = await create('/backends/tunnel_group', { labels });
    const hostports = ['labelled.localhost:443'];
    await create('/edges/tls', { hostports, backend: { backend_id }, tls_termination: { terminate_at: 'edge' } });
    const builder = session.labeledListener().metadata('example');
    for (const [label, value] of Object.entries(labels)) builder.label(label, value);
    const listener = await builder.listen();
    listener.forward(`unix:${path}`).catch(() => {});
    expect([listener.labels(), listener.url()]).toEqual([labels, null]);
    const url = `https://labelled.localhost:${gateway.httpsPort}/path`;
    const body = `hello from labelled.localhost:${gateway.httpsPort}/path`;
    expect(await getPublic(gateway, url)).toMatchObject({ status: 200, body });
    await listener.close();
    await expect(getPublic(gateway, url)).rejects.toThrow();
    await ngrok.forward(config({ addr: `unix:${path}`, proto: 'labeled', labels: ['edge:edghts_example', 'site:a'] }));
    expect(await getPublic(gateway, url)).toMatchObject({ status: 200, body });
  });
});
