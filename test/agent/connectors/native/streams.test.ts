import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { connect as connectHttp2, createServer as createHttp2Server } from 'node:http2';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { text } from 'node:stream/consumers';
import type { TLSSocket } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { EndpointUpstream } from '../../../../src/agent/connectors/connector.ts';
import type { GatewayLink, GatewaySession } from '../../../../src/agent/connectors/gateway-link.ts';
import { openLink } from '../../../../src/agent/open-link.ts';
import { UpstreamDialer } from '../../../../src/agent/upstreams/upstream-dialer.ts';
import { UpstreamGuard } from '../../../../src/agent/upstreams/upstream-guard.ts';
import { NO_PROXIES } from '../../../../src/lib/network/proxy-rules.ts';
import { type Clock, systemClock } from '../../../../src/lib/time/clock.ts';
import { parseUpstreamRules } from '../../../../src/settings/upstream-rules.ts';
import { upstreamAt } from '../../../support/connectors.ts';
import { freePorts } from '../../../support/free-ports.ts';
import { getPublic, startTestGateway, type TestGateway } from '../../../support/gateway.ts';
import { startHttpService } from '../../../support/http-service.ts';
import { listening, serving } from '../../../support/loopback.ts';
import { startRecordingGateway } from '../../../support/recording-gateway.ts';
import { recordingLog, silentLog } from '../../../support/silent-log.ts';
import { SteeredClock } from '../../../support/steered-clock.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';

let gateway: TestGateway;
let session: GatewaySession;

function link(serverAddr: string, pem: string, clock: Clock = systemClock): Promise<GatewayLink> {
  return openLink('native', {
    authtoken: () => gateway.authtoken,
    serverAddr,
    authorities: { pem },
    proxies: NO_PROXIES,
    version: '1.0.0',
    log: silentLog,
    clock,
  });
}

beforeAll(async () => {
  gateway = await startTestGateway({ tcpPorts: await freePorts(8) });
  session = await (await link(gateway.sessionAddress, gateway.sessionCa)).connect();
});
afterAll(async () => {
  await session.close();
  await gateway.close();
});

async function upstream(serve: (socket: Socket) => void): Promise<EndpointUpstream> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    serve(socket);
  });
  await listening(server);
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return upstreamAt(`tcp://127.0.0.1:${(server.address() as AddressInfo).port}`);
}

/** A tcp endpoint for the test; connects clients to it. */
async function endpoint(to: EndpointUpstream): Promise<() => Promise<Socket>> {
  const bound = await session.open({ protocol: 'tcp', upstream: to, forwardsTo: 'test' });
  onTestFinished(() => bound.close());
  return async () => {
    const client = connect({ port: Number(new URL(bound.url).port), host: '127.0.0.1', allowHalfOpen: true });
    client.on('error', () => {});
    onTestFinished(() => void client.destroy());
    await once(client, 'connect');
    return client;
  };
}

const closeOf = (socket: Socket) =>
  new Promise<string>((resolve) => socket.once('close', (hadError) => resolve(hadError ? 'reset' : 'closed')));

describe('a stream of the native connector', () => {
  it('carries megabytes both ways, and half-closes', async () => {
    const open = await endpoint(
      await upstream((socket) => {
        const question: Buffer[] = [];
        socket.on('data', (chunk) => question.push(chunk)).on('end', () => socket.end(Buffer.concat(question)));
      }),
    );
    const sent = 'abcdefg'.repeat(1_000_000);
    const client = await open();
    client.end(sent);
    expect((await text(client)) === sent).toBe(true);
  });

  it('lets the upstream speak first', async () => {
    const open = await endpoint(await upstream((socket) => void socket.write('SSH-2.0-device\r\n')));
    const [greeting] = await once(await open(), 'data');
    expect(String(greeting)).toBe('SSH-2.0-device\r\n');
  });

  it('passes a reset of the upstream on, not as an end', async () => {
    const open = await endpoint(
      await upstream((socket) => void socket.write('half', () => socket.once('data', () => socket.resetAndDestroy()))),
    );
    const client = await open();
    await once(client, 'data');
    let ended = false;
    client.on('end', () => {
      ended = true;
    });
    const closed = closeOf(client);
    client.write('now');
    expect([await closed, ended]).toEqual(['reset', false]);
  });

  it('ends the connection to the upstream when the client leaves', async () => {
    let end: (how: string) => void = () => {};
    const ended = new Promise<string>((resolve) => {
      end = resolve;
    });
    const open = await endpoint(
      await upstream((socket) => {
        socket.write('hello');
        socket.resume().on('end', () => socket.end());
        void closeOf(socket).then(end);
      }),
    );
    const client = await open();
    await once(client, 'data');
    client.resetAndDestroy();
    expect(await ended).toMatch(/reset|closed/);
  });

  it('to an upstream that does not read stops alone; the others go on', async () => {
    const stuck = await endpoint(await upstream((socket) => void socket.pause()));
    const echoing = await endpoint(await upstream((socket) => void socket.pipe(socket)));
    const slow = await stuck();
    const flood = Buffer.alloc(65_536);
    let sent = 0;
    while (slow.write(flood) && sent < 64 * flood.length) sent += flood.length;
    const fast = await echoing();
    for (let round = 0; round < 50; round++) {
      fast.write(`round ${round}`);
      expect(String((await once(fast, 'data'))[0])).toBe(`round ${round}`);
    }
  });

  it('gets an answer when the upstream is unreachable: a page by http, a reset by tcp', async () => {
    const unreachable = { connect: () => Promise.reject(new Error('no')), address: async () => '' };
    const web = await session.open({
      protocol: 'http',
      domain: 'dead.localhost',
      upstream: unreachable,
      forwardsTo: 'x',
    });
    onTestFinished(() => web.close());
    const { status, headers, body } = await getPublic(gateway, web.url);
    expect([status, headers['ngrok-error-code']]).toEqual([502, 'ERR_NGROK_8012']);
    expect(body).not.toContain('no session');
    const client = await (await endpoint(unreachable))();
    expect(await closeOf(client.resume())).toBe('reset');
  });

  it('reaches its upstream only as long as the rules allow the address behind the name', async () => {
    let connections = 0;
    const to = await upstream((socket) => {
      connections += 1;
      socket.end('hello');
    });
    const { port } = new URL(await to.address());
    let address = '127.0.0.1';
    const guard = new UpstreamGuard(parseUpstreamRules('127.0.0.1'), async () => [{ address, family: 4 }]);
    const { log, lines } = recordingLog();
    const dialer = new UpstreamDialer({
      guard,
      log,
      socketFolder: temporaryFolder(),
      verifyTls: true,
      connectMs: 1000,
    });
    const named = { kind: 'tcp', scheme: null, host: 'camera.test', port: Number(port) } as const;
    const open = await endpoint(dialer.prepare(named, { protocol: 'tcp' }));
    expect(await text(await open())).toBe('hello');
    // Loopback too, and it answers there.
    address = '127.0.0.2';
    expect(await closeOf((await open()).resume())).toBe('reset');
    expect(lines).toContainEqual(expect.objectContaining({ msg: 'upstream not allowed; connection rejected' }));
    address = '127.0.0.1';
    expect(await text(await open())).toBe('hello');
    expect(connections).toBe(2);
  });

  /** A stream as the gateway opens it for a client of an endpoint with options of other agents. */
  async function streamTo(to: EndpointUpstream, proxyHeader?: Buffer): Promise<Duplex> {
    const bound = await session.open({ protocol: 'http', domain: 'options.localhost', upstream: to, forwardsTo: 'x' });
    onTestFinished(() => bound.close());
    const endpoint = gateway.endpoints.lookup('https', 'options.localhost');
    if (!endpoint) throw new Error('the endpoint is offline');
    const stream = endpoint.openStream({
      address: '203.0.113.7:4567',
      protocol: 'https',
      ...(proxyHeader && { proxyHeader }),
    });
    onTestFinished(() => void stream.destroy());
    return stream;
  }

  it('carries a PROXY header before the first bytes of the client', async () => {
    const header = 'PROXY TCP4 203.0.113.7 127.0.0.1 4567 443\r\n';
    const stream = await streamTo(await upstream((socket) => void socket.pipe(socket)), Buffer.from(header));
    stream.end('GET / HTTP/1.1\r\n');
    expect(await text(stream)).toBe(`${header}GET / HTTP/1.1\r\n`);
  });

  it('carries HTTP/2 to an upstream that speaks it', async () => {
    const server = createHttp2Server((_, res) => void res.end('by HTTP/2'));
    const stream = await streamTo(upstreamAt(`http://127.0.0.1:${await serving(server)}`));
    const client = connectHttp2('http://options.localhost', { createConnection: () => stream });
    onTestFinished(() => client.destroy());
    expect(await text(client.request())).toBe('by HTTP/2');
  });

  it('is accepted by the hundred while the upstream is silent', async () => {
    const seen: Socket[] = [];
    const open = await endpoint(await upstream((socket) => void seen.push(socket)));
    for (let count = 0; count < 100; count++) (await open()).write('x');
    await expect.poll(() => seen.length).toBe(100);
  });
});

describe('closing a session of the native connector', () => {
  async function online(to: EndpointUpstream, clock?: SteeredClock) {
    const own = await (await link(gateway.sessionAddress, gateway.sessionCa, clock)).connect();
    onTestFinished(() => own.end('the test is over'));
    const request = { upstream: to, forwardsTo: 'x' };
    const web = await own.open({ ...request, protocol: 'http', domain: 'drained.localhost' });
    return { own, request, url: web.url };
  }

  it('lets requests that are under way finish, and takes no further ones', async () => {
    const asked: ServerResponse[] = [];
    const service = await startHttpService((_, res) => void asked.push(res));
    onTestFinished(() => service.close());
    const { own, url } = await online(upstreamAt(service.url));
    const [first, second] = [getPublic(gateway, url), getPublic(gateway, url)];
    await expect.poll(() => asked.length).toBe(2);
    // Its connection is idle from here on, and must not hold up the end.
    asked[0]?.end('before');
    await Promise.race([first, second]);
    let closed = false;
    const closing = own.close().then(() => {
      closed = true;
    });
    await expect.poll(() => gateway.endpoints.list()).toEqual([]);
    const late = getPublic(gateway, url);
    await expect.poll(() => gateway.counters.waiting).toBe(1);
    expect(closed).toBe(false);
    asked[1]?.end('until the end');
    await closing;
    expect((await Promise.all([first, second])).map(({ body }) => body).toSorted()).toEqual([
      'before',
      'until the end',
    ]);
    // Its agent could have come back.
    expect((await late).status).toBe(503);
  });

  it('waits for no connection at all when all are idle', async () => {
    const service = await startHttpService((_, res) => void res.end('done'));
    onTestFinished(() => service.close());
    const { own, url } = await online(upstreamAt(service.url), new SteeredClock());
    expect(await getPublic(gateway, url)).toMatchObject({ body: 'done' });
    // By a clock that stands still.
    await own.close();
  });

  it('frees the addresses at once, and ends what takes longer than 2 s', async () => {
    const clock = new SteeredClock();
    const to = await upstream((socket) => void socket.write('hello'));
    const { own, request, url } = await online(to, clock);
    const bound = await own.open({ ...request, protocol: 'tcp' });
    const client = connect(Number(new URL(bound.url).port), '127.0.0.1');
    onTestFinished(() => void client.destroy());
    await once(
      client.on('error', () => {}),
      'data',
    );
    const ended = closeOf(client);
    const closing = own.close();
    await expect.poll(() => gateway.endpoints.list().map((one) => one.url)).not.toContain(url);
    const successor = await session.open({ ...request, protocol: 'http', domain: 'drained.localhost' });
    onTestFinished(() => successor.close());
    const domain = new URL(bound.url).host;
    const samePort = await session.open({ ...request, protocol: 'tcp', domain });
    onTestFinished(() => samePort.close());
    await clock.advanceUntil(closing);
    await ended;
  });
});

describe('a session of the native connector', () => {
  it('resumes the TLS session of the last one, and keeps the gateway’s id', async () => {
    const recorder = await startRecordingGateway();
    const own = await link(recorder.address, recorder.cert);
    for (const resumed of [false, true]) {
      const each = await own.connect();
      await each.open({ protocol: 'http', upstream: upstreamAt('http://127.0.0.1:9'), forwardsTo: 'x' });
      expect((recorder.sockets.at(-1) as TLSSocket).isSessionReused()).toBe(resumed);
      await each.close();
    }
    const ids = recorder.requests.filter(([type]) => type === 0).map(([, body]) => body.ClientId);
    expect(ids).toEqual(['', 'ts_1']);
  });

  it.each([
    ['malformed JSON members', () => ({ Id: 7, URL: [] }), 'ERR_AGENT_GATEWAY_REFUSED'],
    ['an error without a code', () => ({ Error: 'no room' }), 'ERR_AGENT_GATEWAY_REFUSED'],
    ['an error with a code', () => ({ Error: 'in use\n\nERR_NGROK_334' }), 'ERR_NGROK_334'],
  ])('refuses to open an endpoint on %s, and goes on', async (_what, answer, code) => {
    const grant = { Version: '3', ClientId: 'ts_1', Extra: {} };
    const recorder = await startRecordingGateway((type, { Opts }) =>
      type === 0
        ? grant
        : JSON.stringify(Opts).includes('bad.test')
          ? answer()
          : { Id: 'ep_1', URL: 'https://good.test' },
    );
    const own = await (await link(recorder.address, recorder.cert)).connect();
    onTestFinished(() => own.close());
    const request = { protocol: 'http' as const, upstream: upstreamAt('http://127.0.0.1:9'), forwardsTo: 'x' };
    await expect(own.open({ ...request, domain: 'bad.test' })).rejects.toMatchObject({ code });
    expect((await own.open({ ...request, domain: 'good.test' })).url).toBe('https://good.test');
  });

  it('says that commands are not supported, as the SDK does', async () => {
    const [live] = gateway.sessions.sessions;
    await expect(live?.commands.stop()).rejects.toThrow('the agent has not defined a callback for this operation');
  });
});
