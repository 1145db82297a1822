import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import type { GatewaySession } from '../../../../src/agent/connectors/gateway-link.ts';
import { LinkPace } from '../../../../src/agent/connectors/link-pace.ts';
import { openLink } from '../../../../src/agent/open-link.ts';
import { NO_PROXIES } from '../../../../src/lib/network/proxy-rules.ts';
import { type Clock, systemClock } from '../../../../src/lib/time/clock.ts';
import { upstreamAt } from '../../../support/connectors.ts';
import { freePorts } from '../../../support/free-ports.ts';
import { startTestGateway, type TestGateway } from '../../../support/gateway.ts';
import { serving } from '../../../support/loopback.ts';
import { recordingLog, silentLog } from '../../../support/silent-log.ts';
import { SteeredClock } from '../../../support/steered-clock.ts';
import { until } from '../../../support/until.ts';

const MIB = 1_048_576;

const { log, lines } = recordingLog();
let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({ tcpPorts: await freePorts(24), log });
});
afterAll(() => gateway.close());

async function listen(serve: (socket: Socket) => void) {
  const port = await serving(createServer({ allowHalfOpen: true }, (socket) => serve(socket.on('error', () => {}))));
  return `127.0.0.1:${port}`;
}

/**
 * A session through a proxy that lets so many connections pass; returns them too, and how to keep back what one carries.
 *
 * @param delayMs for each chunk of the agent's bytes
 */
async function proxied(limit: number, delayMs?: () => number, clock: Clock = systemClock) {
  const connections: Socket[] = [];
  const held = new Set<number>();
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
    const at = connections.length - 1;
    let last = Promise.resolve();
    near.on('data', (chunk) => {
      if (held.has(at)) return;
      if (delayMs === undefined) {
        if (!far.write(chunk)) near.pause();
        return;
      }
      const arrival = new Promise((resolve) => setTimeout(resolve, delayMs()));
      last = last.then(() => arrival).then(() => void far.write(chunk));
    });
    far.on('drain', () => near.resume());
    near.on('end', () => void last.then(() => far.end()));
    far.pipe(near);
  });
  const link = await openLink('native', {
    authtoken: () => gateway.authtoken,
    serverAddr: address,
    authorities: { pem: gateway.sessionCa },
    proxies: NO_PROXIES,
    version: '1.0.0',
    log: silentLog,
    clock,
  });
  const session = await link.connect();
  onTestFinished(() => session.end('the test is over'));
  const { length } = attached();
  const second = () => until(() => attached().length > length, 'a second connection');
  return { session, connections, second, hold: (at: number) => void held.add(at) };
}

const attached = () => lines.filter(({ msg }) => msg === 'further connection attached');

/** Connects clients to an upstream that echoes. */
/** A client of a `tcp` endpoint. */
async function connectTo(url: string): Promise<Socket> {
  const client = connect({ port: Number(new URL(url).port), host: '127.0.0.1', allowHalfOpen: true });
  onTestFinished(() => void client.destroy());
  await once(
    client.on('error', () => {}),
    'connect',
  );
  return client;
}

async function echo(session: GatewaySession): Promise<() => Promise<Socket>> {
  const upstream = upstreamAt(`tcp://${await listen((socket) => void socket.pipe(socket))}`);
  const bound = await session.open({ protocol: 'tcp', upstream, forwardsTo: 'x' });
  return () => connectTo(bound.url);
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

it('opens a second connection for a bulk stream, which stays where it is, and small streams take the second', async () => {
  const { session, connections, second } = await proxied(2);
  const open = await echo(session);
  const sent = randomBytes(32 * MIB);
  const bulk = await roundTrip(open, sent);
  await second();
  const small = await talk(open);
  await until(() => bulk.done, 'the bulk stream');
  expect(bulk).toMatchObject({ at: sent.length, isSame: true });
  await until(() => small.answers > 10, 'small answers');
  const [first, other] = connections.map(({ bytesRead }) => bytesRead) as [number, number];
  expect(first).toBeGreaterThan(sent.length);
  expect(other).toBeLessThan(MIB);
  expect(connections).toHaveLength(2);
});

it('carries large transfers and half-closed streams on both connections, whatever arrives first', async () => {
  let seed = 1;
  const random = () => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed % 8;
  };
  const { session, connections, second } = await proxied(2, random);
  const open = await echo(session);
  const sizes = [5 * MIB, 3 * MIB, 1, 70_000, 4 * MIB, 262_144, 2 * MIB, 0];
  const sent = randomBytes(5 * MIB);
  const streams = [await roundTrip(open, sent)];
  await second();
  for (const size of sizes) streams.push(await roundTrip(open, sent.subarray(0, size)));
  await until(() => streams.every(({ done }) => done), 'the streams');
  for (const [at, size] of [sent.length, ...sizes].entries()) {
    expect(streams[at]).toMatchObject({ at: size, isSame: true });
  }
  for (const { bytesRead } of connections) expect(bytesRead).toBeGreaterThan(MIB);
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

it.each([0, 1])('loses the streams of connection %i alone when it breaks, and the session goes on', async (broken) => {
  const { session, connections, second } = await proxied(3);
  const open = await echo(session);
  const bulk = await roundTrip(open, randomBytes(64 * MIB));
  await second();
  const small = await talk(open);
  await until(() => small.answers > 3, 'small answers');
  connections[broken]?.destroy();
  await until(() => (broken === 0 ? bulk.done : small.closed), 'the end of its streams');
  expect(broken === 0 ? small.closed : bulk.done).toBe(false);
  const next = await talk(open);
  await until(() => next.answers > 10, 'answers on the other connection');
  const bound = await session.open({ protocol: 'tcp', upstream: upstreamAt('tcp://127.0.0.1:9'), forwardsTo: 'x' });
  expect(bound.url).toMatch(/^tcp:/);
  next.end();
});

it('ends when its last connection breaks', async () => {
  const { session, connections, second } = await proxied(2);
  const open = await echo(session);
  await roundTrip(open, randomBytes(64 * MIB));
  await second();
  for (const connection of connections) connection.destroy();
  expect(await session.lost).not.toBe('');
});

it('ends when a connection breaks that carries a request to the gateway', async () => {
  const { session, connections, second, hold } = await proxied(2);
  const open = await echo(session);
  await roundTrip(open, randomBytes(64 * MIB));
  await second();
  hold(0);
  const bound = session.open({ protocol: 'tcp', upstream: upstreamAt('tcp://127.0.0.1:9'), forwardsTo: 'x' });
  bound.catch(() => {});
  await new Promise(setImmediate);
  connections[0]?.destroy();
  await expect(bound).rejects.toThrow();
  expect(await session.lost).toContain('request');
});

it('delivers what is on both connections before the session closes', async () => {
  const { session, connections, second } = await proxied(2, () => 50, new SteeredClock());
  let sent = 0;
  const pump = (socket: Socket) => {
    const isOver = () => connections.length === 2 && sent > 4 * MIB;
    for (let room = true; room && !isOver(); sent += 65_536) room = socket.write(Buffer.alloc(65_536, sent >> 16));
    if (isOver()) socket.end();
    else socket.once('drain', () => pump(socket));
  };
  const upstream = upstreamAt(
    `tcp://${await listen((socket) => void socket.resume().once('end', () => pump(socket)))}`,
  );
  const bound = await session.open({ protocol: 'tcp', upstream, forwardsTo: 'x' });
  const client = connect({ port: Number(new URL(bound.url).port), host: '127.0.0.1', allowHalfOpen: true });
  let received = 0;
  client.on('data', (chunk: Buffer) => {
    received += chunk.length;
  });
  const isOver = once(client, 'close');
  client.end('go');
  await second();
  // By a clock that stands still: nothing here waits for a deadline.
  await session.close();
  await isOver;
  expect(received).toBe(sent);
});

/** A proxy whose connections are far and slow, each for itself, as where packets are lost; how many there are, and how to break one. */
async function lossyRoad() {
  const connections: Socket[] = [];
  const address = await listen((near) => {
    onTestFinished(() => void near.destroy());
    connections.push(near);
    const far = connect(Number(new URL(`tcp://${gateway.sessionAddress}`).port), '127.0.0.1');
    far.on('error', () => {}).on('close', () => near.destroy());
    near.on('close', () => far.destroy());
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      from.on('data', (chunk: Buffer) => {
        from.pause();
        setTimeout(
          () => {
            to.write(chunk);
            from.resume();
          },
          8 + chunk.length / 4000,
        );
      });
    }
  });
  return { address, connections };
}

/** A session over a road, and a byte stream to an upstream there. */
async function sessionOver(address: string, serve: (socket: Socket) => void, pace?: LinkPace) {
  const link = await openLink('native', {
    authtoken: () => gateway.authtoken,
    serverAddr: address,
    authorities: { pem: gateway.sessionCa },
    proxies: NO_PROXIES,
    version: '1.0.0',
    log: silentLog,
    clock: systemClock,
    // Loopback loses nothing.
    sentAgain: async () => null,
    ...(pace && { pace }),
  });
  const session = await link.connect();
  onTestFinished(() => session.end('the test is over'));
  const upstream = upstreamAt(`tcp://${await listen(serve)}`);
  const bound = await session.open({ protocol: 'tcp', upstream, forwardsTo: 'x' });
  const open = () => connectTo(bound.url);
  const client = await open();
  return { client, session, open };
}

it.each(['down', 'up'] as const)(
  'spreads a transfer %s over several connections where one carries little',
  async (way) => {
    const { address, connections } = await lossyRoad();
    const carried = () => connections.map(({ bytesRead, bytesWritten }) => (way === 'down' ? bytesRead : bytesWritten));
    const [sent, received] = [createHash('sha256'), createHash('sha256')];
    /** Sends until it is spread. */
    const pump = (socket: Socket) => {
      const isSpread = () => carried().filter((bytes) => bytes > MIB).length >= 2;
      while (!isSpread()) {
        const piece = randomBytes(65_536);
        sent.update(piece);
        if (!socket.write(piece)) return void socket.once('drain', () => pump(socket));
      }
      socket.end();
    };
    let onEnd = () => {};
    const arrived = new Promise<void>((resolve) => {
      onEnd = resolve;
    });
    const take = (socket: Socket) => socket.on('data', (chunk) => received.update(chunk)).once('end', onEnd);
    const { client } = await sessionOver(address, way === 'down' ? pump : take);
    if (way === 'down') take(client);
    else pump(client);
    await arrived;
    expect(received.digest('hex')).toBe(sent.digest('hex'));
    // One of them is for what is little.
    expect(connections.length).toBeGreaterThan(2);
    expect(carried()[1]).toBeLessThan(MIB);
  },
);

it('opens no further connection on a metered link, however little one carries', async () => {
  const { address, connections } = await lossyRoad();
  let received = 0;
  const { client } = await sessionOver(
    address,
    (socket) => void socket.end(randomBytes(6 * MIB)),
    new LinkPace('metered', systemClock),
  );
  client.on('data', (chunk: Buffer) => {
    received += chunk.length;
  });
  await once(client, 'end');
  expect([received, connections.length]).toEqual([6 * MIB, 1]);
});

/** Sends until the condition holds. */
function pumpUntil(condition: () => boolean, socket: Socket): void {
  while (!condition())
    if (!socket.write(Buffer.alloc(65_536))) return void socket.once('drain', () => pumpUntil(condition, socket));
  socket.end();
}

it('mixes up nothing while its connections break and clients leave, and goes on', { timeout: 90_000 }, async () => {
  const { address, connections } = await lossyRoad();
  const LENGTH = 700_000;
  const sent = randomBytes(LENGTH);
  const wrong: number[] = [];
  /** After so many bytes, a connection breaks. */
  let breaksAfter = Number.POSITIVE_INFINITY;
  /** Bytes that came, one after another. When a connection is reset, Node may say that it has ended. */
  const check = (socket: Socket) => {
    const got = { length: 0 };
    socket.on('data', (chunk: Buffer) => {
      if (!chunk.equals(sent.subarray(got.length, got.length + chunk.length))) wrong.push(got.length);
      got.length += chunk.length;
      breaksAfter -= chunk.length;
      if (breaksAfter < 0) breakOne();
    });
    return got;
  };
  let isKnown = false;
  const { client, session, open } = await sessionOver(address, (socket) => {
    if (!isKnown) {
      pumpUntil(() => connections.length > 3, socket);
      return;
    }
    const got = check(socket);
    // Clients get as much as they send.
    socket.on('end', () => socket.end(sent.subarray(0, got.length)));
  });
  await once(client.resume(), 'end');
  client.end();
  isKnown = true;
  let isOver = false;
  void session.lost.then(() => {
    isOver = true;
  });
  const ends = { whole: 0, broken: 0 };
  let seed = 7;
  const random = () => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed / 2_147_483_647;
  };
  const transfer = async (at: number) => {
    const socket = await open();
    const got = check(socket);
    socket.end(sent);
    if (at % 5 === 0) setTimeout(() => socket.resetAndDestroy(), 600 * random());
    await new Promise((resolve) => socket.once('close', resolve));
    ends[got.length === LENGTH ? 'whole' : 'broken'] += 1;
  };
  const breakOne = () => {
    breaksAfter = Number.POSITIVE_INFINITY;
    const alive = connections.filter(({ destroyed }) => !destroyed);
    // The session goes on over the others.
    if (alive.length > 2) alive[Math.floor(random() * alive.length)]?.destroy();
  };
  for (let round = 0; round < 12; round += 1) {
    if (round % 3 > 0) breaksAfter = 2 * LENGTH;
    await Promise.all([0, 1, 2, 3, 4].map((at) => transfer(at)));
  }
  expect([wrong, isOver]).toEqual([[], false]);
  expect(Math.min(ends.whole, ends.broken)).toBeGreaterThan(5);
  const last = await open();
  const got = check(last);
  last.end(sent);
  await once(last, 'end');
  expect(got.length).toBe(LENGTH);
});

it('closes its further connections once the link is metered, when no client uses them, and goes on', async () => {
  const { address, connections } = await lossyRoad();
  const pace = new LinkPace('default', systemClock);
  const alive = () => connections.filter(({ destroyed }) => !destroyed).length;
  let isKnown = false;
  const serve = (socket: Socket) => void (isKnown ? socket.pipe(socket) : pumpUntil(() => alive() >= 4, socket));
  const { client, open } = await sessionOver(address, serve, pace);
  await once(client.resume(), 'end');
  client.end();
  isKnown = true;
  // On the second one, as packets were lost.
  const talking = await talk(open);
  await until(() => talking.answers > 3, 'answers');
  pace.follow(true);
  await until(() => alive() === 2, 'the ends of those that are not in use');
  const { answers } = talking;
  await until(() => talking.answers > answers + 3, 'further answers');
  talking.end();
});
