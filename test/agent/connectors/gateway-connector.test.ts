import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { request } from 'node:https';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { text } from 'node:stream/consumers';
import { createServer as createTlsServer } from 'node:tls';
import { listeners } from '@ngrok/ngrok';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { GatewayConnector } from '../../../src/agent/connectors/gateway-connector.ts';
import type { GatewayLinkOptions } from '../../../src/agent/connectors/gateway-link.ts';
import { makeRelayCertificate } from '../../../src/agent/connectors/sdk/gateway-relay.ts';
import { PAUSE_MS } from '../../../src/agent/connectors/sdk/listener-cleanup.ts';
import { openLink } from '../../../src/agent/open-link.ts';
import { openLocalCa } from '../../../src/gateway/certificates/local-ca/local-ca.ts';
import { createLog, type Log } from '../../../src/lib/log/log.ts';
import { NO_PROXIES } from '../../../src/lib/network/proxy-rules.ts';
import { systemClock } from '../../../src/lib/time/clock.ts';
import { CONNECTORS, upstreamAt } from '../../support/connectors.ts';
import { FlakyProxy } from '../../support/flaky-proxy.ts';
import { freePorts } from '../../support/free-ports.ts';
import { startTestGateway, type TestGateway } from '../../support/gateway.ts';
import { listening } from '../../support/loopback.ts';
import { SteeredClock } from '../../support/steered-clock.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';
import { until } from '../../support/until.ts';

let gateway: TestGateway;
let proxy: FlakyProxy;
let upstream: Server;
let forwardTo: string;
let connectorKind: (typeof CONNECTORS)[number];
let log: Log;
let cleanUp: (() => Promise<unknown>)[];

beforeEach(async () => {
  cleanUp = [];
  log = await createLog('silent', 'json');
  gateway = await startTestGateway();
  cleanUp.push(() => gateway.close());
  proxy = await FlakyProxy.start(() => gateway.sessionAddress);
  cleanUp.push(() => proxy.close());
  upstream = createServer((_req, res) => res.end('from the device'));
  await listening(upstream);
  cleanUp.push(async () => upstream.close());
  forwardTo = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`;
});

afterEach(async () => {
  for (const step of cleanUp.reverse()) await step();
});

function connector(options: Partial<GatewayLinkOptions> = {}): GatewayConnector {
  const link = {
    authtoken: () => gateway.authtoken,
    serverAddr: proxy.address,
    authorities: { pem: gateway.sessionCa },
    proxies: NO_PROXIES,
    version: '1.2.3',
    log,
    clock: systemClock,
    ...options,
  };
  const made = new GatewayConnector(link, proxy.address, () => openLink(connectorKind, link));
  cleanUp.push(() => made.stop());
  return made;
}

async function online(options: Partial<GatewayLinkOptions> = {}): Promise<GatewayConnector> {
  const made = connector(options);
  const up = once(made, 'online');
  await made.start();
  await up;
  return made;
}

/** The same by a clock that stands still unless it is advanced. */
async function onlineBy(clock: SteeredClock): Promise<GatewayConnector> {
  const made = connector({ clock });
  const up = once(made, 'online');
  await made.start();
  await clock.advanceUntil(up);
  return made;
}

/** Milliseconds of the steered clock in each step of 5 real ones: handshakes take the time they take. */
const REAL_PACE = 5;

const camera = () => ({
  protocol: 'http' as const,
  domain: 'camera.localhost',
  upstream: upstreamAt(forwardTo),
  forwardsTo: 'localhost:80',
});

/** How many file descriptors this process has open. */
const descriptors = () => readdirSync('/proc/self/fd').length;

/** A gateway that grants each session, and hangs up with that. */
async function openFickleGateway() {
  const { cert, key } = makeRelayCertificate();
  const yes = Buffer.from(JSON.stringify({ Version: '3', ClientId: 'fickle', Extra: {} }));
  let granted = 0;
  const server = createTlsServer({ cert, key }, (sdk) => {
    let asked = Buffer.alloc(0);
    sdk.on('error', () => sdk.destroy());
    sdk.on('data', (chunk) => {
      asked = Buffer.concat([asked, chunk]);
      const json = asked.indexOf('{');
      if (json < 0 || !asked.toString().endsWith('}')) return;
      const answer = Buffer.alloc(8);
      answer.writeUInt32BE(yes.length * 256 + 0x11, 0); // DATA, FIN
      asked.copy(answer, 4, json - 4, json); // the stream of the frame with the request
      sdk.write(Buffer.concat([answer, yes]));
      sdk.end();
      granted++;
    });
  });
  const port = await listening(server);
  return { address: `127.0.0.1:${port}`, cert, granted: () => granted, close: () => server.close() };
}

/** A client's request to an endpoint over HTTPS, as from a browser. */
function get(host: string): Promise<{ status: number | undefined; body: string }> {
  return new Promise((resolve, reject) => {
    const address = {
      host: '127.0.0.1',
      port: gateway.httpsPort,
      servername: host,
      ca: gateway.sessionCa,
      agent: false,
    };
    request({ ...address, headers: { host: `${host}:${gateway.httpsPort}` } }, async (res) => {
      resolve({ status: res.statusCode, body: await text(res) });
    })
      .on('error', reject)
      .end();
  });
}

describe.each(CONNECTORS)('the %s connector', (kind) => {
  beforeEach(() => {
    connectorKind = kind;
  });

  it('forwards traffic to the upstream until the endpoint is closed', async () => {
    const agent = await online();
    const endpoint = await agent.open(camera());
    expect(endpoint.url).toMatch(/^https?:\/\/camera\.localhost/);
    expect(await get('camera.localhost')).toEqual({ status: 200, body: 'from the device' });
    await endpoint.close();
    expect(await get('camera.localhost')).toMatchObject({ status: 404 });
    expect(agent.status).toMatchObject({ state: 'online', gateway: proxy.address, reconnects: 0, lastError: null });
  });

  it('binds many endpoints at once, each with its own domain and upstream', async () => {
    const agent = await online();
    const names = Array.from({ length: 100 }, (_, i) => `camera-${i}.localhost`);
    const endpoints = await Promise.all(names.map((domain) => agent.open({ ...camera(), domain, forwardsTo: domain })));
    expect(endpoints.map(({ url }) => new URL(url).hostname)).toEqual(names);
    expect(gateway.endpoints.list().filter(({ host, forwardsTo }) => host !== forwardsTo)).toEqual([]);
  });

  it('open() fails without a session, and says when to retry', async () => {
    await expect(connector().open(camera())).rejects.toMatchObject({
      status: 503,
      code: 'ERR_AGENT_OFFLINE',
      retryAfter: 5,
    });
  });

  it('passes on the error of an endpoint that is online elsewhere', async () => {
    const one = await online();
    await one.open(camera());
    const other = await online();
    await expect(other.open(camera())).rejects.toMatchObject({ status: 409, code: 'ERR_NGROK_334' });
  });

  it('answers 503 when the gateway has no free tcp port', async () => {
    const busy = await startTestGateway({ tcpPorts: await freePorts(1) });
    cleanUp.push(() => busy.close());
    const { sessionAddress: serverAddr, sessionCa, authtoken } = busy;
    const agent = await online({ serverAddr, authorities: { pem: sessionCa }, authtoken: () => authtoken });
    const shell = {
      protocol: 'tcp',
      upstream: upstreamAt('tcp://127.0.0.1:22'),
      forwardsTo: '22',
    } as const;
    await agent.open(shell);
    await expect(agent.open(shell)).rejects.toMatchObject({ status: 503, code: 'ERR_NGROK_18021' });
  });

  it('reconnects after the connection was cut, and can bind the endpoint again at once', async () => {
    const agent = await online();
    const endpoint = await agent.open(camera());
    const offline = once(agent, 'offline');
    const back = offline.then(() => once(agent, 'online'));
    proxy.cut();
    expect(await endpoint.ended).toMatchObject({ code: null });
    await back;
    expect(agent.status).toMatchObject({ state: 'online', reconnects: 1 });
    await agent.open(camera());
    await endpoint.close(); // of the lost one: nothing happens to its successor
    expect(await get('camera.localhost')).toMatchObject({ status: 200 });
  });

  it('reconnects to a gateway that was restarted', async () => {
    const dataDir = temporaryFolder();
    const { first: sessionPort } = await freePorts(1);
    const first = await startTestGateway({ dataDir, sessionPort });
    let authtoken = first.authtoken;
    const agent = await online({
      serverAddr: first.sessionAddress,
      authorities: { pem: first.sessionCa },
      authtoken: () => authtoken,
    });
    const offline = once(agent, 'offline');
    await first.close();
    await offline;
    const back = once(agent, 'online');
    const second = await startTestGateway({ dataDir, sessionPort });
    cleanUp.push(() => second.close());
    authtoken = second.authtoken;
    await back;
  });

  it('replaces a silent connection, and takes over its endpoints', async () => {
    const clock = new SteeredClock();
    const agent = await onlineBy(clock);
    const endpoint = await agent.open(camera());
    const offline = once(agent, 'offline');
    const from = clock.now();
    proxy.silence();
    await clock.advanceUntil(offline);
    // Counted from the last answer, which may have been a while before.
    const [least, most] = kind === 'sdk' ? [15_000, 30_000] : [5_000, 10_000];
    expect(clock.now() - from).toBeGreaterThanOrEqual(least);
    expect(clock.now() - from).toBeLessThan(most);
    expect(await endpoint.ended).toMatchObject({ code: null });
    await clock.advance(600_000);
    const back = once(agent, 'online');
    proxy.speak();
    const reachable = clock.now();
    await clock.advanceUntil(back, REAL_PACE);
    expect(clock.now() - reachable).toBeLessThan(5000);
    await agent.open(camera());
  });

  it('waits at boot until packets are no longer dropped', async () => {
    const clock = new SteeredClock();
    proxy.silence();
    const agent = connector({ clock });
    await agent.start();
    await clock.advance(600_000);
    expect(agent.status).toMatchObject({ state: 'connecting' });
    expect(agent.status.lastError?.message).toMatch(/1[25] s/);
    const up = once(agent, 'online');
    proxy.speak();
    const reachable = clock.now();
    await clock.advanceUntil(up, REAL_PACE);
    expect(clock.now() - reachable).toBeLessThan(5000);
  });

  it('uses a new authtoken at the next attempt', async () => {
    const revoked = `${'0'.repeat(27)}_${'1'.repeat(22)}`;
    let authtoken = revoked;
    const agent = connector({ authtoken: () => authtoken });
    await agent.start();
    await expect.poll(() => agent.status.lastError?.code).toBe('ERR_NGROK_107');
    expect(JSON.stringify(agent.status)).not.toContain(revoked);
    const up = once(agent, 'online');
    authtoken = gateway.authtoken;
    await up;
    expect(agent.status.lastError).toBeNull();
  });

  it('refuses a gateway with a certificate of another CA, and names the certificate', async () => {
    const dataDir = temporaryFolder();
    const agent = connector({ authorities: { pem: (await openLocalCa(dataDir, log)).caPem } });
    await agent.start();
    await expect
      .poll(() => agent.status.lastError?.message)
      .toMatch(/tls handshake error.* \(certificate presented .*CN=.*set NGROK_CA_CERT to a copy/);
    expect(agent.status.state).toBe('connecting');
  });

  it('reports a protocol that the gateway does not support', async () => {
    const agent = await online();
    const tcp = { protocol: 'tcp' as const, upstream: upstreamAt('tcp://127.0.0.1:22'), forwardsTo: 'localhost:22' };
    await expect(agent.open(tcp)).rejects.toMatchObject({ status: 501, code: 'ERR_NGROK_332' });
  });

  it('applies the traffic policy', async () => {
    const agent = await online();
    const rule = { actions: [{ type: 'deny' as const, config: { status_code: 418 } }] };
    await agent.open({ ...camera(), trafficPolicy: { on_http_request: [rule] } });
    expect(await get('camera.localhost')).toMatchObject({ status: 418 });
  });

  it('retries when something else answers at the address', async () => {
    const impostor = createTcpServer((socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'));
    await listening(impostor);
    cleanUp.push(async () => impostor.close());
    const { port } = impostor.address() as AddressInfo;
    const agent = connector({ serverAddr: `127.0.0.1:${port}` });
    await agent.start();
    await expect.poll(() => agent.status.lastError?.message).toContain('certificate presented at its address: none');
  });

  it('reports an endpoint that the gateway stopped, and keeps the others', async () => {
    const agent = await online();
    const stopped = await agent.open(camera());
    await agent.open({ ...camera(), domain: 'door.localhost' });
    const [session] = gateway.sessions.sessions;
    const endpoint = gateway.endpoints.lookup('https', 'camera.localhost');
    if (!session || !endpoint) throw new Error('the gateway does not know the endpoint');
    session.stopListener(endpoint, 'revoked by the "owner"', 'ERR_NGROK_4242');
    expect(await stopped.ended).toEqual({ code: 'ERR_NGROK_4242', message: 'revoked by the "owner"' });
    expect(agent.status.state).toBe('online');
    await expect.poll(() => gateway.endpoints.list().map(({ host }) => host)).toEqual(['door.localhost']);
  });

  it('replaces the session when the gateway does not confirm an unbind', async () => {
    const clock = new SteeredClock();
    const agent = await onlineBy(clock);
    const endpoint = await agent.open(camera());
    proxy.silence();
    const from = clock.now();
    await clock.advanceUntil(endpoint.close());
    expect(clock.now() - from).toBeLessThan(7000);
    expect(agent.status.state).toBe('offline');
    const back = once(agent, 'online');
    proxy.speak();
    await clock.advanceUntil(back);
    await expect.poll(() => gateway.endpoints.list()).toEqual([]);
  });

  it('rejects a bind without an answer, and all calls waiting behind it', async () => {
    const clock = new SteeredClock();
    const agent = await onlineBy(clock);
    proxy.silence();
    const opens = Promise.allSettled(
      ['one', 'two', 'three'].map((name) => agent.open({ ...camera(), domain: `${name}.localhost` })),
    );
    const from = clock.now();
    for (const result of await clock.advanceUntil(opens)) {
      expect(result).toMatchObject({ status: 'rejected', reason: { status: 503, code: 'ERR_AGENT_OFFLINE' } });
    }
    expect(clock.now() - from).toBeLessThan(17_000);
    expect(agent.status.state).toBe('offline');
  });

  it('reconnects within 5 s of the end of an outage of 10 s', async () => {
    const clock = new SteeredClock();
    const agent = await onlineBy(clock);
    const offline = once(agent, 'offline');
    await proxy.refuse();
    await clock.advanceUntil(offline);
    await clock.advance(10_000);
    expect(agent.status.lastError?.message).toContain('ECONNREFUSED');
    const back = once(agent, 'online');
    await proxy.listen();
    const reachable = clock.now();
    await clock.advanceUntil(back, REAL_PACE);
    expect(clock.now() - reachable).toBeLessThan(5000);
  });

  it('stop() leaves no endpoint bound and no connection open', async () => {
    const agent = await online();
    await Promise.all(['one', 'two'].map((name) => agent.open({ ...camera(), domain: `${name}.localhost` })));
    await agent.stop();
    expect(gateway.endpoints.list()).toEqual([]);
    expect(agent.status.state).toBe('stopped');
    await expect(agent.open(camera())).rejects.toMatchObject({ status: 503 });
  });

  it('leaks no file descriptor over 10 reconnects with endpoints', async () => {
    const clock = new SteeredClock();
    const agent = await onlineBy(clock);
    const reconnect = async () => {
      for (const name of ['one', 'two', 'three']) await agent.open({ ...camera(), domain: `${name}.localhost` });
      const back = once(agent, 'online');
      proxy.cut();
      await clock.advanceUntil(back);
    };
    for (let i = 0; i < 5; i++) await reconnect();
    const before = descriptors();
    for (let i = 0; i < 10; i++) await reconnect();
    const asBefore = until(() => descriptors() <= before, `no more than ${before} descriptors`, { everyMs: 20 });
    await clock.advanceUntil(asBefore);
    expect(agent.status.reconnects).toBe(15);
  });

  it('leaks no file descriptor to a gateway that closes every accepted session', async () => {
    const fickle = await openFickleGateway();
    cleanUp.push(async () => fickle.close());
    const clock = new SteeredClock();
    const agent = connector({ serverAddr: fickle.address, authorities: { pem: fickle.cert }, clock });
    const granted = (count: number) =>
      clock.advanceUntil(until(() => fickle.granted() >= count, `${count} sessions`, { everyMs: 5 }));
    await agent.start();
    await granted(5);
    const before = descriptors();
    await granted(35);
    // Each one that stays costs two: its other end is here as well.
    expect(descriptors()).toBeLessThan(before + 20);
  });
});

it('the SDK frees the listeners of a lost session, and keeps those that replaced them', async () => {
  connectorKind = 'sdk';
  const clock = new SteeredClock();
  const agent = await onlineBy(clock);
  const ids = async () => (await listeners()).map((listener) => listener.id());
  const others = new Set(await ids()); // the table is the process's
  const known = async () => (await ids()).filter((id) => !others.has(id));
  await agent.open(camera());
  const [lost] = await known();
  const back = once(agent, 'offline').then(() => once(agent, 'online'));
  proxy.cut();
  await clock.advanceUntil(back);
  const endpoint = await agent.open(camera());
  expect(await known()).toContain(lost);
  await clock.advance(PAUSE_MS);
  await expect.poll(known).toHaveLength(1);
  expect(await known()).not.toContain(lost);
  expect(await get('camera.localhost')).toMatchObject({ status: 200 });
  await endpoint.close();
  expect(gateway.endpoints.list()).toEqual([]);
});
