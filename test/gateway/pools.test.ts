/** Pools with members whose agent is online and whose upstream is not. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { connect, createServer as createTcpServer } from 'node:net';
import { text as textOf } from 'node:stream/consumers';
import type { Listener, Session } from '@ngrok/ngrok';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { openLink } from '../../src/agent/open-link.ts';
import { UpstreamDialer } from '../../src/agent/upstreams/upstream-dialer.ts';
import { UpstreamGuard } from '../../src/agent/upstreams/upstream-guard.ts';
import { NO_PROXIES } from '../../src/lib/network/proxy-rules.ts';
import { parseUpstream } from '../../src/lib/network/upstream-address.ts';
import { systemClock } from '../../src/lib/time/clock.ts';
import { parseUpstreamRules } from '../../src/settings/upstream-rules.ts';
import { freePorts } from '../support/free-ports.ts';
import { agentSession, getPublic, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { ask } from '../support/http-request.ts';
import { listening } from '../support/loopback.ts';
import { silentLog } from '../support/silent-log.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

const HOST = 'pool.gateway.localhost';

let gateway: TestGateway;
let session: Session;
beforeEach(async () => {
  gateway = await startTestGateway({ tcpPorts: await freePorts(2) });
  onTestFinished(() => gateway.close());
  session = await agentSession(gateway).connect();
});

/** A member of the pool; its upstream is down until it listens. */
async function member(name: string, policy = '', host = HOST) {
  const port = (await freePorts(1)).first;
  const asked: string[] = [];
  const builder = session.httpEndpoint().scheme('HTTP').domain(host).poolingEnabled(true);
  if (policy) builder.trafficPolicy(policy);
  const listener = await builder.listen(false);
  listener.forward(`http://127.0.0.1:${port}`).catch(() => {});
  const start = async () => {
    const server = createServer((req, res) => {
      asked.push(`${req.method} ${req.url}`);
      req.on('end', () => res.end(name)).resume();
    });
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => {
      server.closeAllConnections();
      server.close();
    });
    return server;
  };
  return { start, asked, listener };
}

async function statuses(count: number, options = {}, host = HOST): Promise<number[]> {
  const all: number[] = [];
  for (let asked = 0; asked < count; asked++) all.push((await ask(gateway.httpPort, host, options)).status);
  return all;
}

/** @returns the bodies of so many requests, once they have arrived whole */
function received(server: Server): (count: number) => Promise<string[]> {
  const bodies: string[] = [];
  server.on('request', (req) => {
    let body = '';
    req.on('data', (chunk: Buffer) => {
      body += chunk;
    });
    req.on('end', () => bodies.push(body));
  });
  return async (count) => {
    await until(() => bodies.length === count, 'the bodies');
    return bodies;
  };
}

describe('a pool of which one upstream is down', () => {
  it.each(['GET', 'HEAD', 'DELETE', 'POST'])('answers every %s request without a body', async (method) => {
    await member('down');
    const up = await member('up');
    await up.start();
    expect(await statuses(4, { method })).toEqual([200, 200, 200, 200]);
    expect(up.asked).toHaveLength(4);
  });

  it('passes over several members that are down', async () => {
    for (const _ of [1, 2, 3]) await member('down');
    await (await member('up')).start();
    expect(await statuses(3)).toEqual([200, 200, 200]);
  });

  it('answers requests with a body of up to 64 KiB, which its upstream gets whole and once', async () => {
    for (const _ of [1, 2]) await member('down');
    const up = await member('up');
    const bodies = received(await up.start());
    const body = 'b'.repeat(64 * 1024);
    expect(await statuses(3, { method: 'POST', body })).toEqual([200, 200, 200]);
    expect(await bodies(3)).toEqual([body, body, body]);
  });

  it('sends the rest of a body that a client still uploads to the next member, and keeps the connection', async () => {
    const [down, up] = [await member('down'), await member('up')];
    const bodies = received(await up.start());
    const client = connect(gateway.httpPort, '127.0.0.1');
    onTestFinished(() => void client.destroy());
    const head = `POST / HTTP/1.1\r\nHost: ${HOST}\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n`;
    client.write(`${head}5\r\nfirst\r\n`);
    await until(() => up.asked.length === 1, 'the request');
    client.write('4\r\nrest\r\n0\r\nx-sum: 9\r\n\r\n');
    expect(await bodies(1)).toEqual(['firstrest']);
    const answers = textOf(client);
    client.write(`GET / HTTP/1.1\r\nHost: ${HOST}\r\nConnection: close\r\n\r\n`);
    expect((await answers).match(/HTTP\/1.1 200/g)).toHaveLength(2);
    expect(down.asked).toEqual([]);
  });

  it('applies the policies of all members that it tries, and sends on what one has read', async () => {
    const reads = JSON.stringify({
      on_http_request: [
        { actions: [{ type: 'request-body-find-replace', config: { replacements: [{ from: 'y', to: 'z' }] } }] },
      ],
    });
    await member('down', reads);
    const up = await member('up', reads);
    const bodies = received(await up.start());
    expect(await statuses(2, { method: 'POST', body: 'x' })).toEqual([200, 200]);
    expect(await bodies(2)).toEqual(['x', 'x']);
  });

  it('fails one request with a longer body, and sends further ones to the others', async () => {
    await member('down');
    await (await member('up')).start();
    const all = await statuses(6, { method: 'POST', body: 'x'.repeat(64 * 1024 + 1) });
    expect(all.filter((status) => status === 502)).toHaveLength(1);
    expect(all.filter((status) => status === 200)).toHaveLength(5);
  });

  it('applies the policy of the member that serves the request', async () => {
    await member('down');
    const strict = await member('up', JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }] }] }));
    await strict.start();
    expect(await statuses(4)).toEqual([403, 403, 403, 403]);
    expect(strict.asked).toEqual([]);
  });

  it('answers 502 while all are down, and serves at once when a resting member is back', async () => {
    const [one, two] = [await member('one'), await member('two')];
    const response = await ask(gateway.httpPort, HOST);
    expect([response.status, response.headers['ngrok-error-code']]).toEqual([502, 'ERR_NGROK_8012']);
    await one.start();
    expect(await statuses(2)).toEqual([200, 200]);
    expect(two.asked).toEqual([]);
  });

  it('tries a member again after its rest', async () => {
    const [back, up] = [await member('back'), await member('up')];
    await up.start();
    await statuses(2);
    await back.start();
    await statuses(2);
    expect(back.asked).toEqual([]);
    const now = performance.now.bind(performance);
    vi.spyOn(performance, 'now').mockImplementation(() => now() + 11_000);
    onTestFinished(() => void vi.restoreAllMocks());
    await statuses(4);
    expect(back.asked).toHaveLength(2);
  });

  it('answers what a policy forwards to it', async () => {
    await member('down', '', 'pool.internal');
    await (await member('up', '', 'pool.internal')).start();
    const forward = { type: 'forward-internal', config: { url: 'http://pool.internal' } };
    await member('outside', JSON.stringify({ on_http_request: [{ actions: [forward] }] }), 'out.gateway.localhost');
    expect(await statuses(4, {}, 'out.gateway.localhost')).toEqual([200, 200, 200, 200]);
  });
});

describe('a pool of tcp endpoints of which one upstream is down', () => {
  const serve = (listener: Listener, port: number) => void listener.forward(`tcp://127.0.0.1:${port}`).catch(() => {});

  it('loses the first connection to it, and serves further ones', async () => {
    const up = createTcpServer((socket) => socket.on('error', () => {}).end('up'));
    onTestFinished(() => void up.close());
    const down = (await freePorts(1)).first;
    const first = await session.tcpEndpoint().poolingEnabled(true).listen(false);
    const address = new URL(String(first.url())).host;
    serve(first, down);
    serve(await session.tcpEndpoint().remoteAddr(address).poolingEnabled(true).listen(false), await listening(up));
    const greetings: string[] = [];
    for (const _ of [1, 2, 3, 4, 5, 6]) {
      const socket = connect(Number(new URL(String(first.url())).port), '127.0.0.1');
      let seen = '';
      let isClosed = false;
      socket.on('data', (chunk) => {
        seen += chunk;
      });
      socket
        .on('error', () => {})
        .on('close', () => {
          isClosed = true;
        });
      await until(() => isClosed, 'the end of the connection');
      greetings.push(seen);
    }
    expect(greetings.filter((greeting) => greeting === '')).toHaveLength(1);
    expect(greetings.filter((greeting) => greeting === 'up')).toHaveLength(5);
  });
});

it('a member gets no client while its agent says that its upstream is down', async () => {
  const link = await openLink('native', {
    ...{ authtoken: () => gateway.authtoken, serverAddr: gateway.sessionAddress, version: '1.0.0' },
    ...{ authorities: { pem: gateway.sessionCa }, proxies: NO_PROXIES, log: silentLog, clock: systemClock },
  });
  const native = await link.connect();
  onTestFinished(() => native.close());
  const guard = new UpstreamGuard(parseUpstreamRules('loopback'));
  const dialer = new UpstreamDialer({
    ...{ guard, log: silentLog, socketFolder: temporaryFolder(), verifyTls: true, connectMs: 1_000 },
  });
  const bind = async (port: number) => {
    const upstream = dialer.prepare(parseUpstream(port), { protocol: 'http' });
    let clients = 0;
    const connect = () => {
      clients += 1;
      return upstream.connect();
    };
    const counted = { connect, address: () => upstream.address(), watchReach: upstream.watchReach.bind(upstream) };
    const domain = 'native.localhost';
    await native.open({
      ...{ protocol: 'http', domain, upstream: counted, forwardsTo: String(port), options: { pooling: true } },
    });
    return { clients: () => clients, check: () => upstream.connect().then((socket) => socket.destroy()) };
  };
  const [late, server] = [createServer((_, res) => void res.end()), createServer((_, res) => void res.end())];
  onTestFinished(() => {
    for (const each of [late, server]) each.close();
  });
  const port = (await freePorts(1)).first;
  const [back, up] = [await bind(port), await bind(await listening(server))];
  const isTaken = (count: number) => () =>
    gateway.endpoints.list().filter(({ isResponsive }) => isResponsive).length === count;
  // As the agent does every now and then.
  await expect(back.check()).rejects.toThrow();
  await until(isTaken(1), 'the gateway knows');
  const get = async () => (await getPublic(gateway, 'https://native.localhost/')).status;
  expect([await get(), await get(), await get()]).toEqual([200, 200, 200]);
  expect([back.clients(), up.clients() > 0]).toEqual([0, true]);
  late.listen(port, '127.0.0.1');
  await once(late, 'listening');
  await back.check();
  await until(isTaken(2), 'the gateway knows');
  expect([await get(), await get()]).toEqual([200, 200]);
  expect(back.clients()).toBe(1);
});
