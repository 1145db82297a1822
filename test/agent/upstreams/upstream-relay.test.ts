import type { LookupAddress } from 'node:dns';
import { once } from 'node:events';
import { readdir, rm, stat } from 'node:fs/promises';
import net, { type AddressInfo, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import tls from 'node:tls';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { TunnelProtocol } from '../../../src/agent/connectors/connector.ts';
import { MAX_CONNECTIONS, UpstreamDialer } from '../../../src/agent/upstreams/upstream-dialer.ts';
import { LocalhostResolver, UpstreamGuard } from '../../../src/agent/upstreams/upstream-guard.ts';
import { dialFailure } from '../../../src/agent-protocol/dial-failure.ts';
import { openLocalCa } from '../../../src/gateway/certificates/local-ca/local-ca.ts';
import type { TcpUpstream, Upstream } from '../../../src/lib/network/upstream-address.ts';
import { parseUpstreamRules } from '../../../src/settings/upstream-rules.ts';
import { freePort, serving } from '../../support/loopback.ts';
import { NO_IPV6, unless } from '../../support/requirements.ts';
import { recordingLog } from '../../support/silent-log.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

/** A dialer whose names resolve to what the test says; localhost to all of loopback. */
async function setUp(names: Record<string, string[] | Promise<string[]>> = {}, verifyTls = true) {
  const socketFolder = temporaryFolder();
  const lookup = async (name: string): Promise<LookupAddress[]> =>
    (await (names[name] ?? [])).map((address) => ({ address, family: net.isIPv6(address) ? 6 : 4 }));
  names.localhost ??= ['127.0.0.1', '::1'];
  const localhost = new LocalhostResolver(lookup);
  const guard = new UpstreamGuard(parseUpstreamRules(`loopback,unix:${socketFolder}`), lookup, localhost);
  const { log, lines } = recordingLog();
  const dialer = new UpstreamDialer({ guard, log, socketFolder, verifyTls, connectMs: 1_000 });
  const prepare = async (upstream: Upstream, protocol: TunnelProtocol = 'http') => {
    const prepared = dialer.prepare(upstream, { protocol });
    onTestFinished(() => prepared.release());
    return { forwardTo: await prepared.address(), release: () => prepared.release() };
  };
  return { socketFolder, guard, dialer, names, prepare, lines };
}

async function listen(
  onConnection: (socket: Socket) => void,
  path?: string,
): Promise<{ server: Server; port: number }> {
  const server = net.createServer({ allowHalfOpen: true }, onConnection);
  server.listen(path ? { path } : { port: 0, host: '127.0.0.1' });
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return { server, port: path ? 0 : (server.address() as AddressInfo).port };
}

const named = (port: number): TcpUpstream => ({ kind: 'tcp', scheme: null, host: 'camera.test', port });
/** As the SDK answers for upstreams that it connects to. */
const UNREACHABLE = dialFailure(null);
const connect = (forwardTo: string) => net.connect({ path: forwardTo.replace('unix:', ''), allowHalfOpen: true });

it('the SDK forwards to IP addresses and localhost directly', async () => {
  const { prepare } = await setUp();
  const forwardTo = async (scheme: 'http' | 'https' | null, host: string) =>
    (await prepare({ kind: 'tcp', scheme, host, port: 80 })).forwardTo;
  expect(await forwardTo(null, 'localhost')).toBe('http://localhost:80');
  // The agent knows more of TLS, and says why it fails.
  expect(await forwardTo('https', '127.0.0.1')).toMatch(/^unix:/);
  expect(await forwardTo(null, '::1')).toBe('http://[::1]:80');
});

describe.each([
  ['127.0.0.1 only', ['127.0.0.1']],
  ['nothing', []],
])('where the system resolves localhost to %s', unless(NO_IPV6), (_, localhost) => {
  const web = (port: number, scheme: 'https' | null = null) =>
    ({ kind: 'tcp', scheme, host: 'localhost', port }) as const;

  it('the SDK gets the address of an upstream on 127.0.0.1', async () => {
    const { prepare } = await setUp({ localhost });
    const { port } = await listen(() => {});
    expect((await prepare(web(port))).forwardTo).toBe(`http://127.0.0.1:${port}`);
  });

  it('the SDK reaches others through the agent, also one that moves', async () => {
    const { prepare } = await setUp({ localhost });
    const port = await freePort();
    const { forwardTo } = await prepare(web(port));
    for (const host of ['::1', '127.0.0.1', '::1']) {
      const server = net.createServer((socket) => void socket.end(host));
      await once(server.listen(port, host), 'listening');
      expect(String(await buffer(connect(forwardTo)))).toBe(host);
      await once(server.close(), 'close');
    }
    expect((await prepare(web(port, 'https'))).forwardTo).toMatch(/^unix:/);
  });

  it('the SDK reaches an upstream through the agent that has moved to ::1', async () => {
    const { prepare, dialer } = await setUp({ localhost });
    const { port } = await listen(() => {});
    await prepare(web(port));
    const health = dialer.healths.find({ upstream: web(port), isHttp: true });
    expect([health?.reachedAt('127.0.0.1'), health?.reachedAt('::1'), health?.reachedAt('::1')]).toEqual([
      false,
      true,
      false,
    ]);
    expect((await prepare(web(port))).forwardTo).toMatch(/^unix:/);
  });
});

it('the SDK forwards to an upstream that has hung through the agent', async () => {
  const { prepare, dialer } = await setUp();
  const upstream = { kind: 'tcp', scheme: null, host: 'localhost', port: 80 } as const;
  expect((await prepare(upstream)).forwardTo).toBe('http://localhost:80');
  dialer.healths.find({ upstream, isHttp: true })?.keepsOpen(32);
  expect((await prepare(upstream)).forwardTo).toMatch(/^unix:/);
});

describe('a named upstream', () => {
  it('is reached after the folder for sockets was deleted', async () => {
    const { prepare, socketFolder } = await setUp({ 'camera.test': ['127.0.0.1'] });
    await rm(socketFolder, { recursive: true });
    const { port } = await listen((socket) => void socket.end('here'));
    const client = connect((await prepare(named(port))).forwardTo);
    expect((await buffer(client)).toString()).toBe('here');
    expect((await stat(socketFolder)).mode & 0o777).toBe(0o700);
  });

  it('gets data in both directions, with half-open ends and back-pressure', async () => {
    const { prepare } = await setUp({ 'camera.test': ['127.0.0.1'] });
    const { port } = await listen((socket) => {
      // Answers only when the question has ended: without half-open ends nothing would come back.
      const question: Buffer[] = [];
      socket.on('data', (chunk) => question.push(chunk)).on('end', () => socket.end(Buffer.concat(question)));
    });
    const client = connect((await prepare(named(port))).forwardTo);
    const sent = Buffer.alloc(20_000_000, 'x');
    client.end(sent);
    const received = await buffer(client);
    expect(received.length).toBe(sent.length);
    expect(received.equals(sent)).toBe(true);
  });

  it('is resolved for every connection, and refused once it resolves to a forbidden address', async () => {
    const { prepare, names, lines } = await setUp({ 'camera.test': ['127.0.0.1'] });
    const { port } = await listen((socket) => socket.end('hello'));
    const { forwardTo } = await prepare(named(port));
    expect(String(await buffer(connect(forwardTo)))).toBe('hello');
    names['camera.test'] = ['169.254.169.254'];
    expect(String(await buffer(connect(forwardTo)))).toBe(UNREACHABLE);
    names['camera.test'] = ['127.0.0.1', '169.254.169.254'];
    expect(String(await buffer(connect(forwardTo)))).toBe(UNREACHABLE);
    // Logged once, so that a name that changes often does not fill the log.
    expect(lines.filter(({ level }) => level === 40)).toEqual([
      expect.objectContaining({ upstream: `camera.test:${port}`, reason: expect.stringContaining('169.254.169.254') }),
    ]);
  });

  it.each([
    ['that is down', { 'camera.test': ['127.0.0.1'] }],
    ['that is unknown', {}],
  ])(
    '%s ends the connection cleanly, with or without data sent, and with a response where it is HTTP',
    async (_, names) => {
      const { prepare } = await setUp(names);
      const { server, port } = await listen(() => {});
      server.close();
      for (const [protocol, answer] of [
        ['http', UNREACHABLE],
        ['tcp', ''],
      ] as const) {
        const client = connect((await prepare(named(port), protocol)).forwardTo);
        client.write('GET / HTTP/1.1\r\n\r\n');
        expect(String(await buffer(client))).toBe(answer);
        client.end();
      }
    },
  );

  it('closes its connection when the client disconnects, and the reverse', async () => {
    const { prepare } = await setUp({ 'camera.test': ['127.0.0.1'] });
    const sockets: Socket[] = [];
    const { server, port } = await listen((socket) => void sockets.push(socket.resume().on('error', () => {})));
    const { forwardTo } = await prepare(named(port));
    const first = connect(forwardTo);
    await once(server, 'connection');
    const closed = once(sockets[0] as Socket, 'end');
    first.destroy();
    await closed;
    const second = connect(forwardTo).on('error', () => {});
    await once(server, 'connection');
    sockets[1]?.resetAndDestroy();
    await once(second.resume(), 'end');
    second.destroy();
  });

  it('leaves no socket file after release', async () => {
    const { prepare, socketFolder } = await setUp({ 'camera.test': ['127.0.0.1'] });
    const { port } = await listen((socket) => socket.on('error', () => {}));
    const prepared = await prepare(named(port));
    const client = connect(prepared.forwardTo).on('error', () => {});
    await once(client, 'connect');
    await prepared.release();
    await once(client.resume(), 'end');
    client.destroy();
    expect(await readdir(socketFolder)).toEqual([]);
    await prepare(named(port));
  });
});

it('a unix socket upstream is checked for every connection', async () => {
  const { prepare, socketFolder } = await setUp();
  const path = join(socketFolder, 'app.sock');
  const { forwardTo } = await prepare({ kind: 'unix', path });
  expect(String(await buffer(connect(forwardTo)))).toBe(UNREACHABLE);
  await listen((socket) => socket.end('hello'), path);
  expect(String(await buffer(connect(forwardTo)))).toBe('hello');
});

describe('the upstream check before a tunnel is created', () => {
  it.each([
    ['metadata.test', 'ERR_AGENT_UPSTREAM_NOT_ALLOWED'],
    ['public.test', 'ERR_AGENT_UPSTREAM_NOT_ALLOWED'],
    ['nobody.test', 'ERR_AGENT_UPSTREAM_UNKNOWN'],
  ])('refuses %s with %s', async (host, code) => {
    const { guard } = await setUp({ 'metadata.test': ['::ffff:169.254.169.254'], 'public.test': ['8.8.8.8'] });
    const check = guard.check({ kind: 'tcp', scheme: null, host, port: 80 });
    await expect(check).rejects.toMatchObject({
      status: 400,
      code,
      details: { forwards_to: expect.stringContaining(host) },
    });
  });
});

describe('an https upstream', () => {
  it('has its certificate verified by name, unless verification is off', async () => {
    const folder = temporaryFolder();
    const ca = await openLocalCa(folder, recordingLog().log);
    const { cert, key } = await ca.issue(['camera.test']);
    const server = tls.createServer({ cert, key }, (socket) => socket.end(`hello, ${socket.servername}`));
    server.on('tlsClientError', () => {});
    const port = await serving(server);
    const upstream: TcpUpstream = { ...named(port), scheme: 'https' };
    const strict = await setUp({ 'camera.test': ['127.0.0.1'] });
    expect(String(await buffer(connect((await strict.prepare(upstream)).forwardTo)))).toBe(
      dialFailure('presents a certificate of an unknown CA'),
    );
    const lenient = await setUp({ 'camera.test': ['127.0.0.1'] }, false);
    expect(String(await buffer(connect((await lenient.prepare(upstream)).forwardTo)))).toBe('hello, camera.test');
  });
});

it('connections to upstreams are limited, and those that are being made count', async () => {
  let resolve: (addresses: string[]) => void = () => {};
  const addresses = new Promise<string[]>((found) => {
    resolve = found;
  });
  const { dialer, lines } = await setUp({ 'camera.test': addresses });
  const { port } = await listen((socket) => void socket.end());
  const upstream = dialer.prepare(named(port), { protocol: 'tcp' });
  const connecting = Array.from({ length: MAX_CONNECTIONS }, () => upstream.connect());
  await expect(upstream.connect()).rejects.toThrow('too many connections');
  expect(lines.map(({ msg }) => msg)).toEqual([]);
  resolve([]);
  await Promise.allSettled(connecting);
  await expect(upstream.connect()).rejects.not.toThrow('too many connections');
});
