import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import type { GatewaySession } from '../../../../src/agent/connectors/gateway-session.ts';
import { openLink } from '../../../../src/agent/open-link.ts';
import { NO_PROXIES } from '../../../../src/lib/network/proxy-rules.ts';
import { type Clock, systemClock } from '../../../../src/lib/time/clock.ts';
import { upstreamAt } from '../../../support/connectors.ts';
import { freePorts } from '../../../support/free-ports.ts';
import { startTestGateway, type TestGateway } from '../../../support/gateway.ts';
import { silentLog } from '../../../support/silent-log.ts';
import { SteeredClock } from '../../../support/steered-clock.ts';
import { until } from '../../../support/until.ts';

const MIB = 1_048_576;

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({ tcpPorts: await freePorts(8) });
});
afterAll(() => gateway.close());

async function listen(serve: (socket: Socket) => void) {
  const server = createServer({ allowHalfOpen: true }, (socket) => serve(socket.on('error', () => {})));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/**
 * A session through a proxy that lets so many connections pass; returns them too.
 *
 * @param delayMs for bytes of the agent on the second connection
 */
async function proxied(limit: number, delayMs = 0, clock: Clock = systemClock) {
  const connections: Socket[] = [];
  const address = await listen((near) => {
    onTestFinished(() => void near.destroy());
    if (connections.length >= limit) {
      near.destroy();
      return;
    }
    connections.push(near);
    const far = connect(Number(new URL(`tcp://${gateway.sessionAddress}`).port), '127.0.0.1');
    far.on('error', () => {}).on('close', () => near.destroy());
    near.on('close', () => far.destroy());
    if (delayMs > 0 && connections.length === 2)
      near.on('data', (chunk) => setTimeout(() => far.write(chunk), delayMs));
    else near.pipe(far);
    far.pipe(near);
  });
  const link = await openLink('native', {
    authtoken: () => gateway.authtoken,
    serverAddr: address,
    authorities: { pem: gateway.sessionCa },
    proxies: NO_PROXIES,
    verifyUpstreamTls: true,
    version: '1.0.0',
    log: silentLog,
    clock,
  });
  const session = await link.connect();
  onTestFinished(() => session.end('the test is over'));
  return { session, connections };
}

/** Connects clients to an upstream that echoes. */
async function echo(session: GatewaySession): Promise<() => Promise<Socket>> {
  const upstream = upstreamAt(`tcp://${await listen((socket) => void socket.pipe(socket))}`);
  const bound = await session.open({ protocol: 'tcp', upstream, forwardsTo: 'x' });
  return async () => {
    const client = connect({ port: Number(new URL(bound.url).port), host: '127.0.0.1', allowHalfOpen: true });
    onTestFinished(() => void client.destroy());
    await once(
      client.on('error', () => {}),
      'connect',
    );
    return client;
  };
}

/** Talks on a connection of its own until the test ends; counts the answers. */
async function talk(open: () => Promise<Socket>) {
  const client = await open();
  const talk = { answers: 0, closed: false, end: () => client.destroy() };
  client.on('close', () => {
    talk.closed = true;
  });
  client.on('data', () => {
    talk.answers += 1;
    setImmediate(() => client.write('x'));
  });
  client.write('x');
  return talk;
}

/** Sends the bytes and reads them back; `isSame` as soon as all have arrived. */
async function roundTrip(open: () => Promise<Socket>, sent: Buffer) {
  const client = await open();
  const state = { at: 0, isSame: true, done: false };
  client.on('data', (chunk: Buffer) => {
    state.isSame &&= chunk.equals(sent.subarray(state.at, state.at + chunk.length));
    state.at += chunk.length;
  });
  client.on('close', () => {
    state.done = true;
  });
  client.end(sent);
  return state;
}

it('moves bulk streams to a second connection, and back comes what was sent', async () => {
  const { session, connections } = await proxied(2);
  const open = await echo(session);
  const small = await talk(open);
  const sent = randomBytes(32 * MIB);
  const streams = [await roundTrip(open, sent), await roundTrip(open, sent)];
  await until(() => streams.every(({ done }) => done), 'the streams');
  for (const stream of streams) expect(stream).toMatchObject({ at: sent.length, isSame: true });
  expect(connections).toHaveLength(2);
  // At least what the gateway has buffered for the first stream's client came by the second connection.
  expect(connections[1]?.bytesRead).toBeGreaterThan(8 * MIB);
  expect([small.closed, small.answers > 10]).toEqual([false, true]);
});

it('carries on over the first connection when a second one cannot be opened', async () => {
  const { session, connections } = await proxied(1);
  const open = await echo(session);
  const small = await talk(open);
  const sent = randomBytes(16 * MIB);
  const stream = await roundTrip(open, sent);
  await until(() => stream.done, 'the stream');
  expect(stream).toMatchObject({ at: sent.length, isSame: true });
  expect([connections.length, small.closed]).toEqual([1, false]);
});

it('loses bulk streams alone when the second connection breaks', async () => {
  const { session, connections } = await proxied(2);
  const open = await echo(session);
  const small = await talk(open);
  const stream = await roundTrip(open, randomBytes(64 * MIB));
  await until(() => (connections[1]?.bytesRead ?? 0) > MIB, 'bulk on the second connection');
  connections[1]?.destroy();
  await until(() => stream.done, 'the end of the stream');
  expect(stream.isSame).toBe(true);
  const before = small.answers;
  await until(() => small.answers > before + 10, 'further answers');
  expect(small.closed).toBe(false);
});

it('delivers what is on the second connection before the session closes', async () => {
  const { session, connections } = await proxied(2, 50, new SteeredClock());
  const isMoved = () => (connections[1]?.bytesRead ?? 0) > MIB;
  let sent = 0;
  const pump = (socket: Socket) => {
    for (let room = true; room && !isMoved(); sent += 65_536) room = socket.write(Buffer.alloc(65_536, sent >> 16));
    if (isMoved()) socket.end();
    else socket.once('drain', () => pump(socket));
  };
  const upstream = upstreamAt(
    `tcp://${await listen((socket) => void socket.resume().once('end', () => pump(socket)))}`,
  );
  const bound = await session.open({ protocol: 'tcp', upstream, forwardsTo: 'x' });
  const small = await talk(await echo(session));
  const client = connect({ port: Number(new URL(bound.url).port), host: '127.0.0.1', allowHalfOpen: true });
  let received = 0;
  client.on('data', (chunk: Buffer) => {
    received += chunk.length;
  });
  const isOver = once(client, 'close');
  client.end('go');
  await until(isMoved, 'bulk on the second connection');
  small.end();
  // By a clock that stands still: nothing here waits for a deadline.
  await session.close();
  await isOver;
  expect(received).toBe(sent);
});
