import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import ngrok from '@ngrok/ngrok';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { Device } from '../agent/device.ts';
import { AgentProcess } from '../support/agent-process.ts';
import { CHOSEN_CONNECTOR } from '../support/connectors.ts';
import { agentSettings, getPublic } from '../support/gateway.ts';
import { GatewayProcess } from '../support/gateway-process.ts';
import { freePort, listening, serving } from '../support/loopback.ts';
import { measured } from '../support/measured.ts';
import { processResources } from '../support/process-resources.ts';
import { NO_LINUX, unless } from '../support/requirements.ts';
import { sharedFolder, temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';
import { rounds } from './rounds.ts';

/** Clients of one wave: the session has 500 connections for all tunnels. */
const CLIENTS = rounds({ short: 650, full: 5_000 });
const AT_ONCE = 130;
const SECONDS = Number(process.env.HUNG_SECONDS ?? rounds({ short: 0, full: 120 }));
/** With the SDK, a session that has to be replaced takes 10 to 20 s to be noticed, and the agent 1 to 3 s to come back. */
const RECOVERY_MS = 60_000;
const MAX_GROWTH_MIB = 128;
/** The agent has given older ones up long ago, and this process may not have more files open. */
const MAX_HELD = 10_000;
/** Of the agent's files: those of a session that is being replaced, and what its relay holds. */
const MAX_FILES = 2_500;
const OWN = 'agent.localhost';

const folder = sharedFolder();
const held = new Set<Socket>();
/** Agrees to upgrades, begins responses, and never ends a connection. */
const hung = createServer({ allowHalfOpen: true }, (socket) => {
  held.add(socket);
  const [oldest] = held;
  if (held.size > MAX_HELD) oldest?.destroy();
  socket.on('error', () => {}).once('close', () => held.delete(socket));
  socket.on('data', (bytes) => {
    const isUpgrade = /^upgrade:/im.test(bytes.toString('latin1'));
    socket.write(
      isUpgrade
        ? 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n'
        : 'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n',
    );
  });
});
const honest = createHttpServer((_req, res) => void res.end('served'));
let device: Device;

beforeAll(async () => {
  for (const server of [hung, honest]) {
    await listening(server);
  }
  // As its service runs it: on a large machine, V8 would let garbage grow for longer.
  const NODE_OPTIONS = '--max-semi-space-size=1 --v8-pool-size=1 --max-old-space-size=256';
  device = await Device.start(folder, { AGENT_DOMAIN: OWN, NODE_OPTIONS });
  for (const [name, server] of Object.entries({ hung, honest })) {
    const { port } = server.address() as AddressInfo;
    const { status } = await device.post({ domain: `${name}.localhost`, forwards_to: port });
    expect(status).toBe(200);
  }
});
afterAll(async () => {
  await device.agent.end();
  for (const socket of held) socket.destroy();
  for (const server of [hung, honest]) server.close();
});

async function isServed(host: string): Promise<boolean> {
  return [200, 401].includes((await device.get(host).catch(() => ({ status: 0 }))).status);
}

/** Asks the hung upstream, and leaves in the middle of the response. */
async function askAndLeave(headers: string): Promise<void> {
  const { host, port, servername, ca } = { ...device.address('hung.localhost'), port: device.httpsPort };
  const client = connectTls({ host, port, servername, ca }).on('error', () => {});
  client.write(`GET / HTTP/1.1\r\nHost: hung.localhost:${port}\r\n${headers}\r\n`);
  // The upstream has begun to answer, or the gateway is busy.
  await Promise.race([once(client, 'data'), once(client, 'close'), delay(3_000)]);
  client.destroy();
}

/** Clients of the hung upstream, 130 at a time. */
async function wave(headers: string): Promise<void> {
  for (let asked = 0; asked < CLIENTS; asked += AT_ONCE) {
    await Promise.all(Array.from({ length: AT_ONCE }, () => askAndLeave(headers)));
  }
}

/** Milliseconds until the other tunnel and the agent's own domain answer. */
async function timeUntilServed(): Promise<number> {
  const from = performance.now();
  for (const host of ['honest.localhost', OWN]) {
    await until(() => isServed(host), `${host} after the wave`, { withinMs: RECOVERY_MS, everyMs: 250 });
  }
  return performance.now() - from;
}

const upstreamState = async () => {
  const all = (await (await fetch(`${device.api}/tunnels`)).json()) as {
    domain: string;
    upstream: { state: string };
  }[];
  return all.find(({ domain }) => domain === 'hung.localhost')?.upstream.state;
};
const logged = (msg: string) => device.agent.lines.some((line) => line.msg === msg);

const resources = () => processResources(device.agent.child.pid);

const WAVES = [
  '',
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Ng==\r\nSec-WebSocket-Version: 13\r\n',
];

it('an upstream that never closes takes nothing from other tunnels for long, when clients have left it', {
  timeout: 240_000 + SECONDS * 2_000,
  ...unless(NO_LINUX),
}, async () => {
  const before = resources();
  const end = performance.now() + SECONDS * 1_000;
  const times: number[] = [];
  /** After the first wave: buffers and pools are as large as they get. */
  let warmMib = 0;
  do {
    for (const headers of WAVES) {
      await wave(headers);
      times.push(await timeUntilServed());
      warmMib ||= resources().rssMib;
      expect(resources().fds).toBeLessThan(before.fds + MAX_FILES);
    }
  } while (performance.now() < end);
  measured({
    fault: `${CLIENTS} clients that leave a hung upstream`,
    tried: times.length,
    recovery: times,
    note: `${Math.round(warmMib)} MiB after the first, ${Math.round(resources().rssMib)} MiB at the end`,
  });
  const [, ...later] = times;
  // With the SDK, the agent owns the upstream's connections once it is known to hang.
  expect(Math.max(...later)).toBeLessThan(20_000);
  if (CHOSEN_CONNECTOR === 'sdk') {
    await until(async () => (await upstreamState()) === 'hangs', 'the agent to notice', {
      withinMs: 60_000,
      everyMs: 500,
    });
    // The answer of its API may be read before its log.
    await until(() => logged('upstream keeps connections open that clients have left'), 'the log to say so');
  }
  for (const socket of held) socket.destroy();
  await until(async () => (await upstreamState()) === 'answers', 'the upstream to be well again', {
    withinMs: 60_000,
    everyMs: 500,
  });
  await until(() => resources().fds < before.fds + 40, 'the descriptors', { withinMs: 90_000, everyMs: 500 });
  expect(resources().rssMib).toBeLessThan(warmMib + MAX_GROWTH_MIB);
});

/** Connections that a session can carry in the next test. */
const PLACES = rounds({ short: 250, full: 500 });
const OTHER_SESSIONS = 8;
/** For so long, clients of the hung upstreams come and leave; most of them are refused. */
const REFUSED_MS = rounds({ short: 15_000, full: 60_000 });

it('no other tunnel notices upstreams that never close, beside many sessions of the same authtoken', {
  timeout: 120_000 + 2 * REFUSED_MS,
  ...unless(NO_LINUX),
}, async () => {
  const folder = temporaryFolder();
  const tcpPort = await freePort();
  const gateway = await GatewayProcess.start(folder, {
    GATEWAY_MAX_STREAMS: String(PLACES),
    GATEWAY_TCP_PORTS: `${tcpPort}-${tcpPort}`,
  });
  onTestFinished(() => gateway.kill());
  const silent = await serving(createServer({ allowHalfOpen: true }, (socket) => void socket.on('error', () => {})));
  // Each request needs a connection of its own.
  const closing = await serving(
    createHttpServer((_req, res) => void res.writeHead(200, { connection: 'close' }).end('served')),
  );
  for (let at = 0; at < OTHER_SESSIONS; at++) {
    const builder = new ngrok.SessionBuilder().authtoken(gateway.authtoken).serverAddr(gateway.sessionAddress);
    const session = await builder.caCert(Buffer.from(gateway.sessionCa)).connect();
    onTestFinished(() => session.close());
    await session.httpEndpoint().domain(`other-${at}.localhost`).listenAndForward(`http://127.0.0.1:${closing}`);
  }
  const agent = AgentProcess.inTest(temporaryFolder(), agentSettings(gateway));
  const api = await agent.ready();
  for (const tunnel of [
    { domain: 'silent.localhost', forwards_to: silent },
    { domain: 'heads.localhost', forwards_to: (hung.address() as AddressInfo).port },
    { domain: 'through.localhost', protocol: 'tls', forwards_to: silent },
    { protocol: 'tcp', forwards_to: silent },
    { domain: 'honest.localhost', forwards_to: closing },
  ]) {
    const options = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(tunnel) };
    expect((await fetch(`${api}/tunnels`, options)).status).toBe(200);
  }

  const { httpsPort: port, sessionCa: ca } = gateway;
  const askAndLeaveAt = async (name: string, headers = '') => {
    const client =
      name === 'tcp'
        ? connect(tcpPort, '127.0.0.1')
        : connectTls({ host: '127.0.0.1', port, servername: `${name}.localhost`, ca });
    client.on('error', () => {}).write(`GET / HTTP/1.1\r\nHost: ${name}.localhost\r\n${headers}\r\n`);
    // Those who are refused at the tcp port get a reset.
    const isAnswered = once(client, 'data').catch(() => {});
    await Promise.race([isAnswered, new Promise((resolve) => client.once('close', resolve)), delay(2_000)]);
    client.destroy();
  };
  let isOver = false;
  /** The statuses that clients of an upstream get which answers. */
  const ask = async (host: string) => {
    const statuses = new Set<number | undefined>();
    for (; !isOver; await delay(50))
      statuses.add((await getPublic(gateway, `https://${host}.localhost:${port}/`)).status);
    return [...statuses];
  };
  const asking = Promise.all(['honest', 'other-0'].map(ask));
  const crowd = (name: string, headers?: string) =>
    Promise.all(Array.from({ length: PLACES }, () => askAndLeaveAt(name, headers)));
  for (const from = performance.now(); performance.now() - from < REFUSED_MS; ) {
    for (const name of ['tcp', 'through', 'silent', 'heads']) await crowd(name);
    await crowd('heads', WAVES[1]);
  }
  isOver = true;
  expect(await asking).toEqual([[200], [200]]);
  expect(gateway.process.lines.filter(({ msg }) => msg.includes('session ended'))).toEqual([]);
});
