import { createHash } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import { type EventEmitter, once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import { Agent, createServer as createHttpsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { WebSocketServer } from 'ws';
import { selfSigned } from '../support/self-signed.ts';
import { sharedFolder, temporaryFolder } from '../support/temporary-folder.ts';
import { Device } from './device.ts';

const LARGE = Buffer.alloc(32 * 1_048_576, 'a large upload ');
const sha256 = (data: Buffer) => createHash('sha256').update(data).digest('hex');

const folder = sharedFolder();
let device: Device;
let upstream: Server;
let port: number;

const service: RequestListener = async (req, res) => {
  if (req.url === '/upload') {
    const hash = createHash('sha256');
    for await (const chunk of req) hash.update(chunk as Buffer);
    res.end(hash.digest('hex'));
  } else if (req.url === '/events') {
    res.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: 1\n\n');
  } else {
    res.end(`the service, asked by ${req.headers['x-forwarded-proto']} for ${req.headers.host}`);
  }
};

async function listening(server: Server, at: number | string = 0): Promise<number> {
  if (typeof at === 'string') server.listen(at);
  else server.listen(at, '127.0.0.1');
  await once(server, 'listening');
  return typeof at === 'string' ? 0 : (server.address() as AddressInfo).port;
}

function closing(server: Server): void {
  server.closeAllConnections();
  server.close();
}

beforeAll(async () => {
  upstream = createServer(service);
  new WebSocketServer({ server: upstream }).on('connection', (socket) => {
    socket.on('message', (data) => socket.send(`echo: ${data}`));
  });
  port = await listening(upstream);
  device = await Device.start(folder, {
    AGENT_ALLOW_UPSTREAMS: 'loopback,private,unix',
    AGENT_VERIFY_UPSTREAM_TLS: 'false',
  });
});
afterAll(async () => {
  await device.agent.end();
  closing(upstream);
});

/** A tunnel to the upstream, online when this resolves. */
async function tunnel(domain: string, forwards_to: string | number = port): Promise<void> {
  const answer = await device.post({ domain, forwards_to });
  expect([answer.status, await answer.text()]).toEqual([200, expect.any(String)]);
}

/** Resolves when a connection has ended, in whatever way. */
function ended(connection: EventEmitter): Promise<void> {
  connection.on('error', () => {});
  return new Promise((resolve) => connection.once('close', () => resolve()));
}

async function refusal(answer: Promise<Response>): Promise<unknown> {
  return (await answer).json();
}

describe('POST /tunnels', () => {
  it('answers once the tunnel is online with the default policies', async () => {
    await tunnel('first.localhost');
    const { status, headers, body } = await device.get('first.localhost');
    expect([status, body]).toEqual([200, `the service, asked by https for first.localhost:${device.httpsPort}`]);
    expect(headers).toMatchObject({ 'x-content-type-options': 'nosniff', 'x-served-by': 'device-agent' });
  });

  it('refuses the agent’s own domain', async () => {
    const failed = await refusal(device.post({ domain: 'agent.localhost', forwards_to: port }));
    expect(failed).toMatchObject({ status_code: 409, error_code: 'ERR_AGENT_DOMAIN_IN_USE' });
    expect(await device.delete('agent')).toBe(404);
    expect((await device.get('agent.localhost', { path: '/healthz' })).status).toBe(200);
  });

  it('passes on the gateway’s error code and place for a policy the gateway cannot run', async () => {
    const actions = [{ type: 'deny' }];
    const policy = { inbound: [{ actions }, { expressions: ['req.method =='], actions }] };
    const failed = await refusal(device.post({ domain: 'policy.localhost', forwards_to: port, policy }));
    expect(failed).toMatchObject({ status_code: 400, error_code: 'ERR_NGROK_9026' });
    // As its author wrote it, not as the agent sends it.
    expect(failed).toHaveProperty(['details', 'policy.inbound[1].expressions[0]']);
    expect(JSON.stringify(failed)).not.toContain('on_http_request');
    expect(await device.knowsNothingOf('policy.localhost')).toBe(true);
  });

  it('applies the policy in the request', async () => {
    const expressions = ["req.url.path.startsWith('/admin')", "!inCidrRange(conn.client_ip, '10.0.0.0/8')"];
    const policy = { on_http_request: [{ expressions, actions: [{ type: 'deny' }] }] };
    expect((await device.post({ domain: 'guarded.localhost', forwards_to: port, policy })).status).toBe(200);
    expect((await device.get('guarded.localhost', { path: '/admin/x' })).status).toBe(403);
    expect((await device.get('guarded.localhost')).status).toBe(200);
  });
});

describe('a tunnel', () => {
  it('forwards a large upload, a WebSocket, and server-sent events without delay', async () => {
    await tunnel('busy.localhost');
    const upload = await device.get('busy.localhost', { method: 'POST', path: '/upload', body: LARGE });
    expect(upload.body).toBe(sha256(LARGE));
    const socket = await device.webSocket('busy.localhost');
    socket.send('hello');
    expect(String((await once(socket, 'message'))[0])).toBe('echo: hello');
    socket.terminate();
    const events = await device.open('busy.localhost', { path: '/events' });
    expect(String((await once(events, 'data'))[0])).toBe('data: 1\n\n');
    events.destroy();
  });

  it('stops at once when deleted, with open connections too', async () => {
    await tunnel('gone.localhost');
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    onTestFinished(() => agent.destroy());
    expect((await device.get('gone.localhost', { agent })).status).toBe(200);
    const socket = await device.webSocket('gone.localhost');
    const socketEnd = ended(socket);
    const events: IncomingMessage = await device.open('gone.localhost', { path: '/events' });
    await once(events, 'data');
    const eventsEnd = ended(events);
    expect(await device.delete('gone')).toBe(204);
    expect((await device.get('gone.localhost', { agent })).status).toBe(404);
    expect((await device.get('gone.localhost')).status).toBe(404);
    await socketEnd;
    await eventsEnd;
    expect(events.complete).toBe(false);
    expect(await device.delete('gone')).toBe(404);
  });

  it('reaches an upstream on a unix socket', async () => {
    const server = createServer(service);
    const path = join(folder, 'service.sock');
    await listening(server, path);
    onTestFinished(() => closing(server));
    await tunnel('unix.localhost', `unix:${path}`);
    expect((await device.get('unix.localhost')).body).toContain('the service');
    const upload = await device.get('unix.localhost', { method: 'POST', path: '/upload', body: LARGE });
    expect(upload.body).toBe(sha256(LARGE));
  });

  it('reaches an upstream by its network name', async ({ skip }) => {
    const named = await lookup(hostname(), { family: 4 }).catch(() => null);
    if (!named) return skip('this machine has no name');
    const server = createServer(service).listen(0, named.address);
    await once(server, 'listening');
    onTestFinished(() => closing(server));
    await tunnel('named.localhost', `${hostname()}:${(server.address() as AddressInfo).port}`);
    expect((await device.get('named.localhost')).body).toContain('the service');
  });

  it('reaches an https upstream with an untrusted certificate when verification is off', async () => {
    const server = createHttpsServer(await selfSigned(), service);
    const securePort = await listening(server);
    onTestFinished(() => closing(server));
    await tunnel('secure.localhost', `https://localhost:${securePort}`);
    expect((await device.get('secure.localhost')).body).toContain('the service, asked by https');

    const strictFolder = temporaryFolder();
    const strict = await Device.start(strictFolder);
    onTestFinished(async () => {
      await strict.agent.end();
    });
    expect(
      (await strict.post({ domain: 'secure.localhost', forwards_to: `https://localhost:${securePort}` })).status,
    ).toBe(200);
    expect((await strict.get('secure.localhost')).status).toBe(502);
  });
});

describe('the API on the agent’s own domain', () => {
  const remote = (path: string, headers: Record<string, string> = {}) =>
    device.get('agent.localhost', { path, headers });

  it('requires the API token', async () => {
    const token = readFileSync(join(folder, 'data', 'api-token'), 'utf8').trim();
    expect((await remote('/tunnels')).status).toBe(401);
    expect((await remote('/tunnels', { authorization: 'Bearer wrong-wrong-wrong' })).status).toBe(401);
    const { status, body } = await remote('/tunnels', { authorization: `Bearer ${token}` });
    // Their upstreams may be checked in between.
    const urls = (tunnels: { url: string }[]) => tunnels.map(({ url }) => url);
    expect([status, urls(JSON.parse(body))]).toEqual([200, urls(await device.tunnels())]);
  });

  it('starts and deletes tunnels', async () => {
    const token = readFileSync(join(folder, 'data', 'api-token'), 'utf8').trim();
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    const body = JSON.stringify({ protocol: 'http', forwards_to: String(port), domain: 'far.localhost' });
    expect((await device.get('agent.localhost', { method: 'POST', path: '/tunnels', headers, body })).status).toBe(200);
    expect((await device.get('far.localhost')).status).toBe(200);
    const path = `/tunnels/${encodeURIComponent('far.localhost')}`;
    expect((await device.get('agent.localhost', { method: 'DELETE', path, headers })).status).toBe(204);
    expect((await device.get('far.localhost')).status).toBe(404);
  });
});

it('all tunnels come back after kill -9, including one whose domain the gateway chose', async () => {
  await tunnel('named-by-request.localhost');
  const { url, domain } = (await (await device.post({ forwards_to: port })).json()) as { url: string; domain: string };
  expect(url).toBe(`https://${domain}:${device.httpsPort}`);
  expect((await device.get(domain)).status).toBe(200);
  const identities = async () => (await device.tunnels()).map(({ url, domain, policy }) => ({ url, domain, policy }));
  const before = await identities();
  await device.agent.end('SIGKILL');
  device = await Device.start(folder, {
    AGENT_ALLOW_UPSTREAMS: 'loopback,private,unix',
    AGENT_VERIFY_UPSTREAM_TLS: 'false',
    GATEWAY_HTTPS_PORT: String(device.httpsPort),
  });
  expect(await identities()).toEqual(before);
  expect((await device.get(domain)).status).toBe(200);
  expect((await device.get('named-by-request.localhost')).status).toBe(200);
});
