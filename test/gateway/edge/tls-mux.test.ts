import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { request } from 'node:https';
import { connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  type ConnectionOptions,
  connect as connectTls,
  createServer as createTlsServer,
  type TLSSocket,
} from 'node:tls';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { openLocalCa } from '../../../src/gateway/certificates/local-ca/local-ca.ts';
import { AgentConnections } from '../../../src/gateway/edge/tls/agent-connections.ts';
import { EDGE_TERMINATION } from '../../../src/gateway/endpoints/online-endpoint.ts';
import { NO_DIRECT_CLIENTS, TestEdge } from '../../support/edge.ts';
import { agentSession, getPublic, startTestGateway, type TestGateway } from '../../support/gateway.ts';
import { askHttp2, openHttp2 } from '../../support/http2-client.ts';
import { listening } from '../../support/loopback.ts';
import { unless } from '../../support/requirements.ts';
import { recordingLog, silentLog } from '../../support/silent-log.ts';
import { helloOf } from '../../support/tls-records.ts';

describe('agents at the public TLS port', () => {
  let gateway: TestGateway;
  let upstreamPort: number;
  const upstream = createServer((_req, res) => res.end('from the device'));
  beforeAll(async () => {
    gateway = await startTestGateway({ sessionPort: null });
    upstreamPort = await listening(upstream);
  });
  afterAll(async () => {
    await gateway.close();
    upstream.close();
  });

  async function serveBy(address: string, domain: string): Promise<{ status: number | undefined; body: string }> {
    const session = await agentSession(gateway, address).connect();
    onTestFinished(() => session.close());
    const listener = await session.httpEndpoint().domain(domain).listen(false);
    listener.forward(`http://127.0.0.1:${upstreamPort}`).catch(() => {});
    return getPublic(gateway, String(listener.url()));
  }

  /** Forwards to the gateway under a server name that does not resolve here. */
  async function underName(servername: string): Promise<string> {
    const { cert, key } = await (await openLocalCa(`${gateway.dataDir}/gateway`, silentLog)).issue(['127.0.0.1']);
    const target = { host: '127.0.0.1', port: gateway.httpsPort, servername, ca: gateway.sessionCa };
    const server = createTlsServer({ cert, key }, (near) => {
      const far = connectTls(target);
      near.pipe(far).pipe(near);
      near.on('error', () => far.destroy()).on('close', () => far.destroy());
      far.on('error', () => near.destroy()).on('close', () => near.destroy());
    });
    onTestFinished(() => void server.close());
    return `127.0.0.1:${await listening(server)}`;
  }

  it('connect under the name connect.<domain>', async () => {
    expect(await serveBy(await underName('connect.localhost'), 'cam1.localhost')).toMatchObject({
      status: 200,
      body: 'from the device',
    });
  });

  it('connect by IP address, without a host name', unless(NO_DIRECT_CLIENTS), async () => {
    expect(gateway.sessionAddress).toBe(`127.0.0.1:${gateway.httpsPort}`);
    expect(await serveBy(gateway.sessionAddress, 'cam2.localhost')).toMatchObject({
      status: 200,
      body: 'from the device',
    });
  });

  it('cannot connect under any other name', async () => {
    const session = agentSession(gateway, await underName('agents.localhost')).connect();
    await expect(session).rejects.toThrow();
  });

  it('share the port with HTTP clients without a host name', async () => {
    const options = { host: '127.0.0.1', port: gateway.httpsPort, servername: '', ca: gateway.sessionCa, agent: false };
    const req = request({
      ...options,
      method: 'POST',
      path: '/bot_users',
      headers: { host: `api.localhost:${gateway.httpsPort}` },
    });
    req.end('a body');
    const [res] = (await once(req, 'response')) as [IncomingMessage];
    expect(res.statusCode).toBe(403);
    expect(JSON.parse(await text(res))).toMatchObject({ error_code: 'ERR_NGROK_200' });
  });
});

describe('a connection to the public TLS port', () => {
  const HELLO_START = Buffer.from('160301020001', 'hex');

  async function start(tlsLimits: object): Promise<TestEdge> {
    const edge = await TestEdge.start({ tlsLimits });
    onTestFinished(() => edge.close());
    await edge.serve('site.localhost', (_req, res) => res.end('served'), { protocol: 'https' });
    return edge;
  }
  /** Sends the start of a ClientHello, which the gateway has read. */
  async function sendPartialHello(edge: TestEdge): Promise<Socket> {
    const socket = connect(edge.httpsPort, '127.0.0.1').on('error', () => {});
    onTestFinished(() => void socket.destroy());
    await once(socket, 'connect');
    socket.write(HELLO_START);
    // The gateway accepts it in one turn of the event loop, and reads it in the next.
    for (const _ of [1, 2, 3]) await nextTurn();
    return socket;
  }
  async function openTls(edge: TestEdge, options: ConnectionOptions = {}): Promise<TLSSocket> {
    const target = { host: '127.0.0.1', port: edge.httpsPort, servername: 'site.localhost', ca: edge.ca.caPem };
    const socket = connectTls({ ...target, ...options }).on('error', () => {});
    onTestFinished(() => void socket.destroy());
    await once(socket, 'secureConnect');
    return socket;
  }
  const served = async (socket: TLSSocket) => {
    socket.write('GET / HTTP/1.1\r\nHost: site.localhost\r\nConnection: close\r\n\r\n');
    return text(socket);
  };
  const closed = (socket: Socket) => socket.closed || once(socket.resume(), 'close');

  it('is closed when its ClientHello or handshake takes too long, but not when idle later', async () => {
    const edge = await start({ handshakeTimeout: 300 });
    // On a busy machine a handshake can take longer than the timeout.
    const idle = await vi.waitFor(() => openTls(edge), 20_000);
    const silent = connect(edge.httpsPort, '127.0.0.1').on('error', () => {});
    const half = await sendPartialHello(edge);
    await closed(silent);
    await closed(half);
    expect(await served(idle)).toContain('served');
  });

  it('without a host name is closed when it sends nothing', async () => {
    const edge = await TestEdge.start({ agents: new AgentConnections('connect.localhost', 100) });
    onTestFinished(() => edge.close());
    await closed(await openTls(edge, { servername: '' }));
  });

  it('that is slow with its ClientHello is evicted for others, oldest first', async () => {
    const edge = await start({ hellos: 2 });
    const first = await sendPartialHello(edge);
    const second = await sendPartialHello(edge);
    // One after another, so that their order is known.
    const third = await sendPartialHello(edge);
    await closed(first);
    expect(await served(await openTls(edge))).toContain('served');
    await closed(second);
    expect(third.closed).toBe(false);
  });

  it('that has sent less is evicted before an agent in its handshake, at the same address', async () => {
    const edge = await TestEdge.start({
      tlsLimits: { hellos: 3 },
      agents: new AgentConnections('connect.localhost'),
    });
    onTestFinished(() => edge.close());
    const agent = connect(edge.httpsPort, '127.0.0.1').on('error', () => {});
    onTestFinished(() => void agent.destroy());
    agent.write(await helloOf({ servername: 'connect.localhost' }));
    await once(agent, 'readable');
    const first = await sendPartialHello(edge);
    for (const _ of [1, 2, 3]) await sendPartialHello(edge);
    await closed(first);
    expect(agent.closed).toBe(false);
  });

  it('that fails affects no other, and is logged once in a while', async () => {
    const { log, lines } = recordingLog();
    const edge = await TestEdge.start({ log });
    onTestFinished(() => edge.close());
    await edge.serve('site.localhost', (_req, res) => res.end('served'), { protocol: 'https' });
    const broken = await edge.serve('broken.localhost', (_req, res) => res.end(), { protocol: 'tls' });
    Object.assign(broken, { tls: { ...EDGE_TERMINATION, certificate: 'no PEM', privateKey: 'neither' } });
    for (let count = 0; count < 3; count++) {
      await expect(openTls(edge, { servername: 'broken.localhost' })).rejects.toThrow();
    }
    expect(lines.filter(({ msg }) => msg === 'TLS connection failed')).toHaveLength(1);
    expect(await served(await openTls(edge))).toContain('served');
  });

  it('that is slow with its handshake as an agent is evicted in the same way', async () => {
    const tlsLimits = { hellos: 2, handshakeTimeout: 120_000 };
    const edge = await TestEdge.start({ tlsLimits, agents: new AgentConnections('connect.localhost') });
    onTestFinished(() => edge.close());
    const hello = await helloOf({ servername: 'connect.localhost' });
    const agents: Socket[] = [];
    for (const _ of [1, 2, 3]) {
      const agent = connect(edge.httpsPort, '127.0.0.1').on('error', () => {});
      onTestFinished(() => void agent.destroy());
      agent.write(hello);
      // The gateway has sent its part of the handshake.
      await once(agent, 'readable');
      agents.push(agent);
    }
    await closed(agents[0] as Socket);
    expect(agents[2]?.closed).toBe(false);
  });

  // Through another node, the crowd is served while the other client's connection is passed on.
  it('waits for few handshakes of a network that begins hundreds at once', unless(NO_DIRECT_CLIENTS), async () => {
    const edge = await start({});
    const hello = await helloOf({ servername: 'site.localhost' });
    let answered = 0;
    const client = async (localAddress: string) => {
      const target = { port: edge.httpsPort, host: '127.0.0.1', localAddress };
      const socket = connect(target).on('error', () => {});
      onTestFinished(() => void socket.destroy());
      await once(socket, 'connect');
      return socket;
    };
    const crowd = await Promise.all(Array.from({ length: 200 }, () => client('127.0.0.2')));
    const other = await client('127.0.0.3');
    // The first handshake for a name waits for its certificate.
    await openTls(edge);
    for (const socket of crowd) socket.once('data', () => answered++).write(hello);
    other.write(hello);
    await once(other, 'data');
    expect(answered).toBeLessThan(100);
  });

  /** An edge with a connection limit, and an upstream that answers `/held` on demand. */
  async function startFull(connections: number) {
    const edge = await TestEdge.start({ tlsLimits: { connections }, httpLimits: { connections } });
    onTestFinished(() => edge.close());
    const held: ServerResponse[] = [];
    const serve = (req: IncomingMessage, res: ServerResponse) =>
      req.url === '/held' ? held.push(res) : res.end('served');
    await edge.serve('site.localhost', serve, { protocol: 'https' });
    await edge.serve('plain.localhost', serve);
    const hold = async (socket: Socket, host = 'site.localhost') => {
      const count = held.length;
      socket.write(`GET /held HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
      await expect.poll(() => held.length).toBe(count + 1);
    };
    return { edge, held, hold };
  }

  it('that is idle is evicted for others, longest idle first', async () => {
    const { edge, hold } = await startFull(3);
    const busy = await openTls(edge);
    await hold(busy);
    const first = await openHttp2(edge, 'site.localhost');
    expect((await askHttp2(first, {})).body).toBe('served');
    const second = await openTls(edge);
    second.write('GET / HTTP/1.1\r\nHost: site.localhost\r\n\r\n');
    await once(second, 'data');
    const third = await openTls(edge);
    if (!first.closed) await once(first, 'close');
    expect(await served(second)).toContain('served');
    expect(await served(third)).toContain('served');
    expect(busy.closed).toBe(false);
  });

  it('that is slow with its handshake is evicted for others', async () => {
    const { edge } = await startFull(1);
    const slow = connect(edge.httpsPort, '127.0.0.1').on('error', () => {});
    onTestFinished(() => void slow.destroy());
    slow.write(await helloOf({ servername: 'site.localhost' }));
    await once(slow, 'readable');
    expect(await served(await openTls(edge))).toContain('served');
    await closed(slow);
  });

  it('is rejected while all others are busy', async () => {
    const { edge, held, hold } = await startFull(1);
    const first = await openTls(edge);
    await hold(first);
    await expect(openTls(edge)).rejects.toThrow(/ECONNRESET|disconnected/);
    held[0]?.end('served');
    await once(first, 'data');
    expect(await served(await openTls(edge))).toContain('served');
  });

  it('that has made the least progress is evicted for a client of another network', async () => {
    const { edge, held, hold } = await startFull(2);
    const [first, second] = [edge.connect(), edge.connect()];
    await hold(first, 'plain.localhost');
    await hold(second, 'plain.localhost');
    const other = connect({ port: edge.httpPort, host: '127.0.0.1', localAddress: '127.0.0.2' }).on('error', () => {});
    onTestFinished(() => void other.destroy());
    await hold(other, 'plain.localhost');
    await closed(first.resume());
    held[2]?.end('served');
    expect(String((await once(other, 'data'))[0])).toContain('served');
    expect(second.closed).toBe(false);
    second.destroy();
  });

  it('is limited in the same way without TLS', unless(NO_DIRECT_CLIENTS), async () => {
    const { edge, hold } = await startFull(1);
    const hungUp = (socket: Socket) => new Promise((resolve) => socket.resume().once('close', resolve));
    const first = edge.connect();
    const second = edge.connect();
    await hungUp(first);
    await hold(second, 'plain.localhost');
    await hungUp(edge.connect());
    expect(second.closed).toBe(false);
    second.destroy();
  });
});
