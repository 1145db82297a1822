/** Clients of an endpoint whose agent has lost its session a moment ago. */
import { once } from 'node:events';
import { copyFileSync, existsSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { connect as connectTcp, createServer as createTcpServer } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { connect as connectTls, createSecureContext, TLSSocket } from 'node:tls';
import type { Listener, Session } from '@ngrok/ngrok';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { issueCredential } from '../../src/gateway/store/tokens.ts';
import { issueCertificate } from '../support/certificates.ts';
import { FlakyProxy } from '../support/flaky-proxy.ts';
import {
  agentSession,
  getPublic,
  makeDataDir,
  managementClientOf,
  startTestGateway,
  type TestGateway,
} from '../support/gateway.ts';
import { ask } from '../support/http-request.ts';
import { askHttp2, openHttp2 } from '../support/http2-client.ts';
import { serving } from '../support/loopback.ts';
import { selfSigned } from '../support/self-signed.ts';
import { until } from '../support/until.ts';

const HOST = 'cam.localhost';
const ADDRESSES = 'gateway/online-addresses.jsonl';

let gateway: TestGateway;
let proxy: FlakyProxy;
beforeEach(async () => {
  gateway = await startTestGateway();
  onTestFinished(() => gateway.close());
  proxy = await FlakyProxy.start(() => gateway.sessionAddress);
  onTestFinished(() => proxy.close());
});

/** A session that a cut of the proxy ends. */
async function connect(authtoken = gateway.authtoken): Promise<Session> {
  const session = await agentSession(gateway, proxy.address).authtoken(authtoken).connect();
  onTestFinished(() => session.close().catch(() => {}));
  return session;
}

async function bind(session: Session, options: { host?: string; scheme?: string; answer?: string } = {}) {
  const { host = HOST, scheme = 'HTTPS', answer = 'here' } = options;
  const port = await serving(createServer((req, res) => void res.end(`${answer} ${req.method}`)));
  const listener = await session.httpEndpoint().domain(host).scheme(scheme).listen(false);
  forward(listener, `http://127.0.0.1:${port}`);
  return listener;
}

function forward(listener: Listener, to: string): void {
  listener.forward(to).catch(() => {});
}

/** Cuts the sessions; resolves once the gateway has noticed. */
async function lose(): Promise<void> {
  proxy.cut();
  await until(() => [...gateway.sessions.sessions].length === 0, 'the end of the session');
}

const get = (host = HOST, headers = {}) => getPublic(gateway, `https://${host}/`, headers);
const isWaiting = (count = 1) => until(() => gateway.counters.waiting === count, `${count} clients that wait`);

describe('a request for a name whose agent was lost', () => {
  it('waits until the agent is back', async () => {
    await bind(await connect());
    await lose();
    const answer = get();
    await isWaiting();
    await bind(await connect());
    expect(await answer).toMatchObject({ status: 200, body: 'here GET' });
    expect(gateway.counters).toMatchObject({ waiting: 0, waits: { served: 1, unavailable: 0, left: 0 } });
  });

  it('gets 503 after 3 s, with Retry-After and a page that says why', async () => {
    await bind(await connect());
    await lose();
    const began = performance.now();
    const [plain, page] = await Promise.all([get(), get(HOST, { accept: 'text/html' })]);
    expect(performance.now() - began).toBeGreaterThan(2900);
    expect(performance.now() - began).toBeLessThan(8000);
    expect(plain).toMatchObject({
      status: 503,
      headers: { 'retry-after': '3', 'ngrok-error-code': 'ERR_GATEWAY_AGENT_AWAY', 'cache-control': 'no-store' },
    });
    expect(JSON.parse(plain.body)).toMatchObject({ error_code: 'ERR_GATEWAY_AGENT_AWAY', status_code: 503 });
    expect(page.body).toContain(`The agent of ${HOST} has lost its connection`);
  });

  it.each([
    ['with a body', { method: 'POST', body: 'x' }, 'here POST'],
    ['over plain HTTP', {}, 'here GET'],
  ])('waits %s', async (_, options, body) => {
    await bind(await connect(), { scheme: 'HTTP' });
    await lose();
    const answer = ask(gateway.httpPort, HOST, options);
    await isWaiting();
    await bind(await connect(), { scheme: 'HTTP' });
    expect(await answer).toMatchObject({ status: 200, body });
  });

  it('waits for the redirect to a name that is served over TLS only', async () => {
    await bind(await connect());
    await lose();
    const answer = ask(gateway.httpPort, HOST);
    await isWaiting();
    await bind(await connect());
    expect((await answer).status).toBe(302);
  });

  it('waits over HTTP/2', async () => {
    await bind(await connect(), { host: `a.${HOST}` });
    const session = await openHttp2({ httpsPort: gateway.httpsPort, ca: { caPem: gateway.sessionCa } }, `a.${HOST}`);
    onTestFinished(() => session.destroy());
    await lose();
    const waiting = [1, 2, 3].map(() => askHttp2(session, {}));
    await isWaiting(3);
    await bind(await connect(), { host: `a.${HOST}` });
    for (const answer of waiting) expect((await answer).headers[':status']).toBe(200);
  });

  it('waits for a WebSocket', async () => {
    const start = async () => {
      const port = await serving(
        createServer().on('upgrade', (_req, socket) => {
          socket.end('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nopen');
        }),
      );
      forward(await (await connect()).httpEndpoint().domain(HOST).scheme('HTTP').listen(false), `127.0.0.1:${port}`);
    };
    await start();
    await lose();
    const socket = connectTcp(gateway.httpPort, '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    socket.write(`GET / HTTP/1.1\r\nHost: ${HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`);
    await isWaiting();
    await start();
    expect(await text(socket)).toMatch(/^HTTP\/1.1 101 .*open$/s);
  });

  it('frees its place when its client leaves', async () => {
    await bind(await connect(), { scheme: 'HTTP' });
    await lose();
    const leave = new AbortController();
    const answer = ask(gateway.httpPort, HOST, { signal: leave.signal }).catch(() => 'left');
    await isWaiting();
    leave.abort();
    expect(await answer).toBe('left');
    await isWaiting(0);
    expect(gateway.counters.waits).toEqual({ served: 0, unavailable: 0, left: 1 });
  });

  it('is repeated when it was under way, if it can safely be sent twice', async () => {
    const asked: string[] = [];
    const hung = await serving(createServer((req) => void asked.push(String(req.method))));
    forward(await (await connect()).httpEndpoint().domain(HOST).scheme('HTTP').listen(false), `127.0.0.1:${hung}`);
    const answers = ['GET', 'POST'].map((method) => ask(gateway.httpPort, HOST, { method }));
    await until(() => asked.length === 2, 'the requests');
    await lose();
    await bind(await connect(), { scheme: 'HTTP' });
    const [get, post] = await Promise.all(answers);
    expect(get).toMatchObject({ status: 200, body: 'here GET' });
    expect(post).toMatchObject({ status: 502, headers: { 'ngrok-error-code': 'ERR_NGROK_3007' } });
  });

  it('is served by another authtoken that has bound the name meanwhile', async () => {
    await bind(await connect());
    await lose();
    const answer = get();
    await isWaiting();
    const { store } = gateway;
    const { token } = await store.database.write(() => issueCredential(store, { acl: [] }));
    await bind(await connect(token), { answer: 'other' });
    expect(await answer).toMatchObject({ status: 200, body: 'other GET' });
  });
});

describe('a request for a name that nobody has', () => {
  it('gets 404 at once', async () => {
    await bind(await connect());
    await lose();
    const began = performance.now();
    expect((await get(`other.${HOST}`)).status).toBe(404);
    expect(performance.now() - began).toBeLessThan(1000);
  });

  it('gets 404 at once when its authtoken was revoked', async () => {
    const { store } = gateway;
    const { row, token } = await store.database.write(() => issueCredential(store, { acl: [] }));
    await bind(await connect(token));
    await (await managementClientOf(gateway)).credentials.delete(row.id);
    const began = performance.now();
    expect((await get()).status).toBe(404);
    expect(performance.now() - began).toBeLessThan(1000);
  });

  it('gets 404 within a second when an SDK has unbound it', async () => {
    const listener = await bind(await connect());
    await listener.close();
    const began = performance.now();
    expect((await get()).status).toBe(404);
    expect(performance.now() - began).toBeLessThan(1500);
  });

  it('waits when the SDK that has unbound it ends its session right after', async () => {
    const listener = await bind(await connect());
    await listener.close();
    const answer = get();
    await isWaiting();
    await lose();
    await bind(await connect());
    expect((await answer).status).toBe(200);
  });
});

describe('a TLS connection for a name whose agent was lost', () => {
  async function tls(options = {}): Promise<TLSSocket> {
    const socket = connectTls({
      ...{ host: '127.0.0.1', port: gateway.httpsPort, servername: HOST, rejectUnauthorized: false },
      ...options,
    });
    onTestFinished(() => void socket.destroy());
    socket.on('error', () => {});
    return socket;
  }

  it('waits before its handshake for a tls endpoint, which presents its own certificate', async () => {
    const { cert, key } = await selfSigned();
    const start = async () => {
      const server = createTcpServer((socket) => {
        const secured = new TLSSocket(socket, { isServer: true, secureContext: createSecureContext({ cert, key }) });
        secured.on('error', () => {}).end('hello');
      });
      forward(await (await connect()).tlsEndpoint().domain(HOST).listen(false), `127.0.0.1:${await serving(server)}`);
    };
    await start();
    await lose();
    const socket = await tls();
    await isWaiting();
    await start();
    await once(socket, 'secureConnect');
    expect(await text(socket)).toBe('hello');
  });

  it('is asked for its certificate by an endpoint that demands one', async () => {
    const ca = await issueCertificate({ subject: 'CN=Fleet CA', ca: true });
    const client = await issueCertificate({ subject: 'CN=camera', issuer: ca });
    const port = await serving(createServer((_req, res) => void res.end('inside')));
    const start = async () => {
      const builder = (await connect()).httpEndpoint().domain(HOST).mutualTlsca(Buffer.from(ca.certificatePem));
      forward(await builder.listen(false), `127.0.0.1:${port}`);
    };
    await start();
    await lose();
    const answers = [{}, { cert: client.certificatePem, key: client.privateKeyPem }].map(async (options) => {
      const socket = await tls(options);
      socket.write(`GET / HTTP/1.1\r\nHost: ${HOST}\r\nConnection: close\r\n\r\n`);
      return text(socket).catch(() => 'closed');
    });
    await isWaiting(2);
    await start();
    expect(await answers[0]).not.toContain('inside');
    expect(await answers[1]).toContain('inside');
  });

  it('gets 503 after 3 s, not after 6', async () => {
    const ca = await issueCertificate({ subject: 'CN=Fleet CA', ca: true });
    await (await connect()).httpEndpoint().domain(HOST).mutualTlsca(Buffer.from(ca.certificatePem)).listen(false);
    await lose();
    const began = performance.now();
    expect((await get()).status).toBe(503);
    expect(performance.now() - began).toBeLessThan(5900);
  });
});

it('a gateway that starts expects the agents that were online when the last one was killed', async () => {
  const { dataDir } = gateway;
  await bind(await connect());
  // As a kill leaves it.
  const killed = await makeDataDir();
  const file = join(dataDir, ADDRESSES);
  await until(() => existsSync(file) && readFileSync(file, 'utf8').includes(`"tls ${HOST}"`), 'the file');
  copyFileSync(file, join(killed, ADDRESSES));
  const next = await startTestGateway({ dataDir: killed });
  onTestFinished(async () => {
    await next.close();
    rmSync(killed, { recursive: true });
  });
  const answer = getPublic(next, `https://${HOST}/`);
  await until(() => next.counters.waiting === 1, 'a client that waits');
  const session = await agentSession(next).connect();
  onTestFinished(() => session.close());
  await bind(session);
  expect((await answer).status).toBe(200);
  expect((await getPublic(next, 'https://other.localhost/')).status).toBe(404);
});
