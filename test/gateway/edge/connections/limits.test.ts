import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import type { Session } from '@ngrok/ngrok';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { freePorts } from '../../../support/free-ports.ts';
import { agentSession, startTestGateway, type TestGateway } from '../../../support/gateway.ts';
import { listening } from '../../../support/loopback.ts';

let session: Session;
let upstream: string;
const echo = createServer((socket) => socket.on('error', () => {}).pipe(socket));
const gateways: TestGateway[] = [];

const LIMITS = {
  connections: 8192,
  handshakeTimeout: 60_000,
  headersTimeout: 60_000,
  headerBytes: 65_536,
  streams: 100,
  streamIdleTimeout: 60_000,
};

async function start(limits: Partial<typeof LIMITS>): Promise<TestGateway> {
  const tcpPorts = await freePorts(1);
  const gateway = await startTestGateway({ tcpPorts, edgeLimits: { ...LIMITS, ...limits } });
  gateways.push(gateway);
  session = await agentSession(gateway).connect();
  const [tcp, tls] = [session.tcpEndpoint(), session.tlsEndpoint().domain('raw.localhost')];
  tls.trafficPolicy(JSON.stringify({ on_tcp_connect: [{ actions: [{ type: 'terminate-tls', config: {} }] }] }));
  for (const builder of [tcp, tls]) {
    const listener = await builder.listen(false);
    listener.forward(`tcp://${upstream}`).catch(() => {});
    onTestFinished(() => listener.close());
  }
  return gateway;
}

beforeAll(async () => {
  const port = await listening(echo);
  upstream = `127.0.0.1:${port}`;
});
afterAll(async () => {
  for (const gateway of gateways) await gateway.close();
  echo.close();
});

function enter(port: number): Socket {
  const socket = connect(port, '127.0.0.1').on('error', () => {});
  onTestFinished(() => void socket.destroy());
  return socket;
}
/** Resolves when a connection has ended, with or without an error. */
function closed(socket: Socket): Promise<unknown> {
  socket.resume();
  return socket.closed ? Promise.resolve() : new Promise((resolve) => socket.once('close', resolve));
}
/** Shorter than all default timeouts of the edge. */
const WAIT_MS = 8000;
/** Whether a connection is closed before a default timeout could have closed it. */
const stateSoon = (socket: Socket) =>
  Promise.race([closed(socket).then(() => 'closed'), setTimeout(WAIT_MS, 'still open', { ref: false })]);

async function isEchoed(socket: Socket): Promise<boolean> {
  socket.write('me');
  const answered = new Promise<boolean>((resolve) => socket.once('data', () => resolve(true)));
  return Promise.race([answered, closed(socket).then(() => false)]);
}
const tcpPort = (gateway: TestGateway) =>
  gateway.endpoints.list().find(({ protocol }) => protocol === 'tcp')?.port ?? 0;

it('headers above headerBytes get a 431', async () => {
  const gateway = await start({ headerBytes: 2048 });
  const ask = (bytes: number) => {
    const socket = enter(gateway.httpPort);
    socket.write(`GET / HTTP/1.1\r\nHost: raw.localhost\r\nConnection: close\r\nX-Long: ${'x'.repeat(bytes)}\r\n\r\n`);
    return text(socket);
  };
  expect(await ask(3000)).toContain('HTTP/1.1 431 ');
  expect(await ask(500)).toContain('HTTP/1.1 302 ');
});

it('headers and handshakes are disconnected after their timeouts', async () => {
  const gateway = await start({ headersTimeout: 200, handshakeTimeout: 200 });
  const [plain, secure] = [enter(gateway.httpPort), enter(gateway.httpsPort)];
  plain.write('GET / HTTP/1.1\r\nHost: ');
  secure.write(Buffer.from('160301020001', 'hex'));
  expect(await Promise.all([plain, secure].map(stateSoon))).toEqual(['closed', 'closed']);
});

it('tcp and tls connections are closed after streamIdleTimeout', async () => {
  const gateway = await start({ streamIdleTimeout: 300 });
  const tls = connectTls({
    host: '127.0.0.1',
    port: gateway.httpsPort,
    servername: 'raw.localhost',
    ca: gateway.sessionCa,
  });
  onTestFinished(() => void tls.destroy());
  tls.on('error', () => {});
  await once(tls, 'secureConnect');
  expect(await Promise.all([tls, enter(tcpPort(gateway))].map(stateSoon))).toEqual(['closed', 'closed']);
});

it('connections above the limit are closed until another one has ended', async () => {
  const gateway = await start({ connections: 1 });
  const port = tcpPort(gateway);
  const first = enter(port);
  expect(await isEchoed(first)).toBe(true);
  expect(await isEchoed(enter(port))).toBe(false);
  expect(await isEchoed(first)).toBe(true);
  first.destroy();
  await expect.poll(() => isEchoed(enter(port))).toBe(true);
});
