import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import { expect, it, onTestFinished } from 'vitest';
import { EdgeServer } from '../../../../src/gateway/edge/edge-server.ts';
import { CONFIRMATION } from '../../../../src/gateway/edge/relays/confirmed-link.ts';
import { NO_HEALTH } from '../../../../src/gateway/edge/relays/node-health.ts';
import type { NodePlace } from '../../../../src/gateway/edge/relays/other-nodes.ts';
import { RelayTickets } from '../../../../src/gateway/edge/relays/relay-tickets.ts';
import { Relays } from '../../../../src/gateway/edge/relays/relays.ts';
import { RemoteEndpoints } from '../../../../src/gateway/edge/relays/remote-endpoints.ts';
import { AgentConnections } from '../../../../src/gateway/edge/tls/agent-connections.ts';
import { EdgeCounters } from '../../../../src/gateway/metrics/edge-counters.ts';
import { parseProxyHeader, proxyHeader } from '../../../../src/lib/network/proxy-protocol.ts';
import { NO_DATABASE, othersWith, TestEdge, withoutParts } from '../../../support/edge.ts';
import { edgeContext } from '../../../support/edge-context.ts';
import { getPublic } from '../../../support/gateway.ts';
import { listening } from '../../../support/loopback.ts';
import { selfSigned } from '../../../support/self-signed.ts';
import { recordingLog } from '../../../support/silent-log.ts';
import { until } from '../../../support/until.ts';

/** Nodes that serve nothing, and believe that the next one serves every name. */
async function circle(count: number, limits: { linkMemory?: number } = {}, emptied = false) {
  const edge = await TestEdge.start();
  onTestFinished(() => edge.close());
  const { ca } = edge;
  const { log, lines } = recordingLog();
  const places: NodePlace[] = [];
  const agents = Array.from({ length: count }, () => new AgentConnections('connect.localhost'));
  const nodes: Relays[] = [];
  const counters = Array.from(
    { length: count },
    (_, at) => new EdgeCounters((connection) => nodes[at]?.isLast(connection) === true),
  );
  for (let at = 0; at < count; at++) {
    const relays = new Relays({
      tickets: new RelayTickets(() => ['key'], String(at), Date.now),
      commonName: 'api.localhost',
      nodes: {
        ...othersWith(() => places[(at + 1) % count]),
        get forAgents() {
          return emptied ? places[(at + 1) % count] : undefined;
        },
      },
      authority: () => ca.caPem,
      isOurs: () => false,
      dial: NO_DATABASE,
      log,
      ...limits,
    });
    nodes.push(relays);
    const node = new EdgeServer(edgeContext({ log, ...(counters[at] && { counters: counters[at] }) }), {
      ...withoutParts(),
      ...(agents[at] && { agents: agents[at] }),
      ca,
      relays,
    });
    onTestFinished(() => node.stop());
    places.push({ id: String(at), host: '127.0.0.1', port: (await node.start()).httpsPort });
  }
  const ask = () => getPublic({ httpsPort: places[0]?.port ?? 0, sessionCa: ca.caPem }, 'https://a.localhost/');
  return { places, nodes, counters, agents, ca, ask, lines };
}

it('nodes that are wrong about each other make no circle', async () => {
  const { counters, ask } = await circle(2);
  // The first passes the connection on, the second its request, and the first has nothing for it.
  expect((await ask()).status).toBe(502);
  // Together, they count it once.
  expect(counters.map(({ totals }) => totals.responses)).toEqual([0, 1]);
});

it('an agent that comes to a node which is emptied is served by another one, until the node ends', async () => {
  const { places, nodes, agents, ca } = await circle(2, {}, true);
  const served = agents.map((connections, at) => {
    return new Promise<number>((resolve) => {
      connections.open({
        accept: (agent) => {
          agent.pipe(agent);
          resolve(at);
        },
      });
    });
  });
  const agent = connectTls({ port: places[0]?.port ?? 0, servername: 'connect.localhost', ca: ca.caPem });
  onTestFinished(() => void agent.destroy());
  agent.write('seen');
  expect(await Promise.race(served)).toBe(1);
  expect(String((await once(agent, 'data'))[0])).toBe('seen');
  await delay(600); // Connections of clients count as idle then.
  nodes[0]?.closeIdle();
  agent.write('again');
  expect(String((await once(agent, 'data'))[0])).toBe('again');
});

it('a request gets 503 when this node has too many connections to others', async () => {
  const { ask } = await circle(2, { linkMemory: 1 });
  const { status, headers } = await ask();
  expect([status, headers['ngrok-error-code'], headers['retry-after']]).toEqual([503, 'ERR_NGROK_3007', '1']);
});

it('a client of a node that is gone is disconnected at once, and the log says so', async () => {
  const { places, ask, lines } = await circle(2);
  Object.assign(places[1] ?? {}, { port: 1 });
  await expect(ask()).rejects.toThrow();
  expect(lines.find(({ msg }) => msg === 'other gateway does not answer')).toMatchObject({
    node: '1',
    address: '127.0.0.1:1',
    reason: expect.stringContaining('ECONNREFUSED'),
  });
});

it('no request goes to a stranger at the address of a node, and the log says so', async () => {
  const { places, ask, lines } = await circle(3);
  let received = '';
  const stranger = createTlsServer(await selfSigned(), (socket) => {
    socket
      .on('error', () => {})
      .on('data', (bytes) => {
        received += bytes;
      });
  });
  const receive = (socket: Socket) => {
    const bytes: Buffer = socket.read();
    socket.unshift(bytes.subarray(parseProxyHeader(bytes)?.length));
    stranger.emit('connection', socket);
  };
  const port = await listening(createServer((socket) => socket.once('readable', () => receive(socket))).unref());
  Object.assign(places[2] ?? {}, { port });
  expect((await ask()).status).toBe(502);
  expect(received).toBe('');
  expect(lines.find(({ msg }) => msg === 'other gateway does not answer')).toMatchObject({
    node: '2',
    reason: 'no gateway of this cluster: its certificate for a.localhost is not trusted',
  });
});

it.each([
  ['ends as it is asked', (socket: Socket) => void socket.once('data', () => socket.destroy())],
  ['hangs', (socket: Socket) => void socket.resume()],
])('a client of a node that %s is served by the next one', async (_what, behave) => {
  const { places, ask } = await circle(2);
  const broken = createServer(behave);
  const port = await listening(broken);
  onTestFinished(() => void broken.close());
  const next = { ...places[1] } as NodePlace;
  Object.assign(places[1] ?? {}, { port, next });
  expect((await ask()).status).toBe(502);
});

it('a stranger who has seen the header of a node cannot use it', async () => {
  const { places } = await circle(1);
  const ends = { clientIp: '127.0.0.1', clientPort: 1, serverIp: '127.0.0.1', serverPort: 2 };
  const stranger = connect(places[0]?.port ?? 0, '127.0.0.1');
  await once(stranger, 'connect');
  stranger.write(new RelayTickets(() => ['another key'], '0', Date.now).issue(ends, '0'));
  // A fatal alert, as for everything that is no ClientHello.
  expect(Buffer.from(await text(stranger), 'latin1').subarray(0, 1)).toEqual(Buffer.from([0x15]));
});

it('a client network has some connections to other nodes, and leaves as many for others', async () => {
  const held: Socket[] = [];
  const node = createServer((socket) => {
    held.push(socket.on('error', () => {}).resume());
    socket.write(Buffer.from([CONFIRMATION]));
  });
  const place = { id: 'other', host: '127.0.0.1', port: await listening(node) };
  onTestFinished(() => void node.close());
  const endpoints = new RemoteEndpoints({
    ...{ tickets: new RelayTickets(() => ['key'], 'self', Date.now), nodes: othersWith(() => place), commonName: '' },
    ...{ authority: () => '', isOurs: () => false, health: NO_HEALTH, forget: () => {} },
    linkMemory: 512 * 1024,
  });
  const open = (ip: string) => {
    const ends = { clientIp: ip, clientPort: 1, serverIp: '127.0.0.1', serverPort: 2 };
    const client = { address: `${ip}:1`, protocol: 'http', proxyHeader: proxyHeader(2, ends) } as const;
    return endpoints.at('http', 'a.localhost')?.openStream(client);
  };
  const first = [open('192.0.2.1'), open('192.0.2.1')];
  expect(() => open('192.0.2.1')).toThrow(
    expect.objectContaining({ status: 503, code: 'ERR_NGROK_3007', retryAfter: 1 }),
  );
  const other = open('198.51.100.1');
  await until(() => held.length === 3, 'three connections');
  for (const stream of first) stream?.destroy();
  await until(() => held.filter(({ destroyed }) => destroyed).length === 2, 'two of them to end');
  const again = open('192.0.2.1');
  await until(() => held.length === 4, 'another connection');
  for (const stream of [other, again]) stream?.destroy();
});
