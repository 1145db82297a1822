import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { connect as connectTls } from 'node:tls';
import { expect, it, onTestFinished } from 'vitest';
import { cidrList } from '../../src/lib/network/ip-address.ts';
import { proxyHeader } from '../../src/lib/network/proxy-protocol.ts';
import { freePorts } from '../support/free-ports.ts';
import { agentSession, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { startHttpService } from '../support/http-service.ts';
import { serving } from '../support/loopback.ts';
import { recordingLog } from '../support/silent-log.ts';
import { until } from '../support/until.ts';

/** A part of the loopback network, as if it were the balancer's. */
const BALANCER = '127.0.0.77';
const CLIENT = { clientIp: '203.0.113.7', clientPort: 4567, serverIp: '192.0.2.1', serverPort: 443 };

async function setUp() {
  const { log, lines } = recordingLog();
  const gateway = await startTestGateway({ balancers: cidrList([BALANCER]), tcpPorts: await freePorts(2), log });
  onTestFinished(() => gateway.close());
  const upstream = await startHttpService(({ headers }, res) => void res.end(String(headers['x-forwarded-for'])));
  onTestFinished(() => upstream.close());
  return { gateway, upstream, lines };
}

function from(port: number, localAddress: string): Socket {
  const socket = connect({ port, host: '127.0.0.1', localAddress }).on('error', () => {});
  onTestFinished(() => void socket.destroy());
  return socket;
}

/** A connection of the balancer's that begins with bytes of its own. */
function balanced(port: number, header: Buffer | string = proxyHeader(2, CLIENT), localAddress = BALANCER): Socket {
  const socket = from(port, localAddress);
  socket.write(header);
  return socket;
}

function secure(socket: Socket, { sessionCa }: TestGateway, servername: string): Socket {
  return connectTls({ socket, servername, ca: sessionCa }).on('error', () => {});
}

/** What the upstream says of the client. */
async function clientOver(connection: Socket, host: string): Promise<string> {
  const res = await new Promise<IncomingMessage>((resolve, reject) => {
    request({ createConnection: () => connection, headers: { host } }, resolve)
      .on('error', reject)
      .end();
  });
  return text(res);
}

/** Forwards to a port as a balancer does, with a header first. */
async function balancerOf(port: number): Promise<string> {
  const server = createServer((client) => {
    const gateway = balanced(port);
    client.on('error', () => gateway.destroy()).on('close', () => gateway.destroy());
    client.pipe(gateway).pipe(client);
  });
  return `127.0.0.1:${await serving(server)}`;
}

it('the client is who the load balancer says, on every port, and nobody else is asked', async () => {
  const { gateway, upstream } = await setUp();
  const session = await agentSession(gateway, await balancerOf(gateway.sessionPort)).connect();
  const { port } = new URL(upstream.url);
  const web = await session.httpEndpoint().domain('a.localhost').listen();
  web.forward(`http://localhost:${port}`).catch(() => {});
  const plain = await session.httpEndpoint().domain('a.localhost').scheme('HTTP').listen();
  plain.forward(`http://localhost:${port}`).catch(() => {});
  const [agent] = [...gateway.sessions.sessions];
  expect(agent?.address).toBe(CLIENT.clientIp);

  for (const version of [1, 2] as const) {
    const header = proxyHeader(version, CLIENT);
    const tls = secure(balanced(gateway.httpsPort, header), gateway, 'a.localhost');
    expect(await clientOver(tls, 'a.localhost')).toBe(CLIENT.clientIp);
    expect(await clientOver(balanced(gateway.httpPort, header), 'a.localhost')).toBe(CLIENT.clientIp);
  }
  // Health checks of the balancer itself, and clients that reach the gateway without it.
  const own = balanced(gateway.httpPort, Buffer.from('0d0a0d0a000d0a515549540a20000000', 'hex'));
  expect(await clientOver(own, 'a.localhost')).toBe(BALANCER);
  expect(await clientOver(from(gateway.httpPort, '127.0.0.1'), 'a.localhost')).toBe('127.0.0.1');
});

it.each([
  ['behind a balancer that passes on mapped addresses', { balancers: cidrList([BALANCER]) }],
  ['on ports for IPv4 and IPv6', { host: '::' }],
])('a client with IPv4 has its IPv4 address, for policies and in logs: %s', async (_where, options) => {
  const gateway = await startTestGateway(options);
  onTestFinished(() => gateway.close());
  const upstream = await startHttpService(({ headers }, res) => void res.end(String(headers['x-forwarded-for'])));
  onTestFinished(() => upstream.close());
  const isBalanced = 'balancers' in options;
  const clientIp = isBalanced ? CLIENT.clientIp : '127.0.0.1';
  const session = await agentSession(gateway, `127.0.0.1:${gateway.sessionPort}`).connect();
  const allow = { type: 'restrict-ips', config: { allow: [`${clientIp}/32`] } };
  const policy = JSON.stringify({ on_http_request: [{ actions: [allow] }] });
  const listener = await session.httpEndpoint().domain('a.localhost').trafficPolicy(policy).listen();
  listener.forward(upstream.url).catch(() => {});
  const mapped = { ...CLIENT, clientIp: `::ffff:${CLIENT.clientIp}`, serverIp: `::ffff:${CLIENT.serverIp}` };
  const { httpsPort } = gateway;
  const connection = isBalanced ? balanced(httpsPort, proxyHeader(2, mapped)) : from(httpsPort, clientIp);
  expect(await clientOver(secure(connection, gateway, 'a.localhost'), 'a.localhost')).toBe(clientIp);
  const [agent] = [...gateway.sessions.sessions];
  expect(agent?.address).toBe('127.0.0.1');
});

it('a policy sees the client of a tcp endpoint, and its bytes are all that the upstream gets', async () => {
  const { gateway } = await setUp();
  const received: string[] = [];
  const upstream = createServer((socket) => void socket.on('data', (bytes) => received.push(String(bytes))));
  await serving(upstream);
  const session = await agentSession(gateway).connect();
  const onlyClient = `on_tcp_connect: [{ actions: [{ type: restrict-ips, config: { allow: [${CLIENT.clientIp}/32] } }] }]`;
  const listener = await session.tcpEndpoint().trafficPolicy(onlyClient).listen();
  listener.forward(`tcp://127.0.0.1:${(upstream.address() as AddressInfo).port}`).catch(() => {});
  const port = Number(new URL(String(listener.url())).port);
  balanced(port).write('hello');
  await until(() => received.length > 0, 'the bytes');
  expect(received.join('')).toBe('hello');
  const other = from(port, '127.0.0.1');
  await new Promise((resolve) => other.once('close', resolve));
});

it('closes a connection of the balancer without a header, and believes nobody else', async () => {
  const { gateway, lines } = await setUp();
  const silent = balanced(gateway.httpPort, 'GET / HTTP/1.1\r\nHost: a.localhost\r\n\r\n');
  await new Promise((resolve) => silent.once('close', resolve));
  const refused = lines.find(({ msg }) => msg === 'connection of a load balancer without a PROXY header');
  expect(refused).toMatchObject({ level: 40, address: BALANCER });
  const liar = balanced(gateway.httpPort, `${proxyHeader(1, CLIENT)}GET / HTTP/1.1\r\n\r\n`, '127.0.0.1');
  expect(await text(liar)).toContain('HTTP/1.1 400');
});

it('the port for agents stops at once although a load balancer has yet to say who its client is', async () => {
  const { gateway } = await setUp();
  const silent = from(gateway.sessionPort, BALANCER);
  const closed = once(silent, 'close');
  // Accepted after it.
  const other = from(gateway.sessionPort, '127.0.0.1');
  other.write('no TLS');
  await once(other, 'close');
  await gateway.sessions.stop();
  await closed;
});
