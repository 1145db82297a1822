import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { expect, it, onTestFinished, vi } from 'vitest';
import { ConnectionSlots } from '../../../../src/gateway/edge/tls/connection-slots.ts';
import { serving } from '../../../support/loopback.ts';
import { until } from '../../../support/until.ts';

const FIRST = '127.0.0.1';
const SECOND = '127.0.0.2';

/** Slots for some connections, all taken, from one address unless others are given. */
async function setUp(...addresses: string[]) {
  const from = addresses.length > 0 ? addresses : [FIRST, FIRST, FIRST];
  const slots = new ConnectionSlots({ limit: from.length, closeIdle: () => false });
  const server = createServer();
  await serving(server);
  const clients = new Map<Socket, Socket>();
  const enter = async (from: string): Promise<Socket> => {
    const { port } = server.address() as AddressInfo;
    const client = connect({ port, host: '127.0.0.1', localAddress: from }).on('error', () => {});
    onTestFinished(() => void client.destroy());
    const [socket] = (await once(server, 'connection')) as [Socket];
    clients.set(socket, client);
    return socket;
  };
  const sockets: Socket[] = [];
  for (const address of from) sockets.push(await enter(address));
  for (const socket of sockets) expect(slots.take(socket)).toBe(true);
  return { slots, sockets, clients, enter };
}
/** Replaces the clock and the timers that check progress. */
function stopClock() {
  vi.useFakeTimers({ toFake: ['performance', 'setInterval', 'clearInterval'] });
  onTestFinished(() => void vi.useRealTimers());
}

const closed = (sockets: Socket[]) => sockets.map((socket) => socket.destroyed);

it('a full port closes an unfinished handshake first', async () => {
  const { slots, sockets, enter } = await setUp();
  slots.setEvictable(sockets[1] as Socket, true);
  expect(slots.take(await enter('127.0.0.2'))).toBe(true);
  expect(closed(sockets)).toEqual([false, true, false]);
});

it('a full port closes no handshake for a stranger that only waits for its turn', async () => {
  stopClock();
  const { slots, sockets, enter } = await setUp(FIRST, SECOND);
  for (const socket of sockets) slots.setEvictable(socket, true);
  vi.advanceTimersByTime(600);
  expect(slots.take(await enter('127.0.0.3'))).toBe(false);
  slots.handshakeBegins(sockets[1] as Socket);
  vi.advanceTimersByTime(400);
  expect(slots.take(await enter('127.0.0.3'))).toBe(false);
  vi.advanceTimersByTime(200);
  expect(slots.take(await enter('127.0.0.3'))).toBe(true);
  expect(closed(sockets)).toEqual([false, true]);
});

it('a full port closes no handshake that has just begun while another network holds more', async () => {
  stopClock();
  const { slots, sockets, enter } = await setUp(FIRST, SECOND, FIRST, SECOND, FIRST);
  const [, one, , other] = sockets as [Socket, Socket, Socket, Socket];
  for (const socket of [one, other]) {
    slots.setEvictable(socket, true);
    slots.handshakeBegins(socket);
  }
  expect(slots.take(await enter('127.0.0.3'))).toBe(true);
  expect(closed(sockets)).toEqual([true, false, false, false, false]);
});

it('a full port closes no connection of an agent', async () => {
  const { slots, sockets, enter } = await setUp();
  slots.protect(sockets[0] as Socket);
  expect(slots.take(await enter('127.0.0.2'))).toBe(true);
  expect(closed(sockets)).toEqual([false, true, false]);
});

it('a full port closes nothing for a client whose network already has as much', async () => {
  const { slots, sockets, enter } = await setUp();
  const refused = await enter('127.0.0.1');
  expect(slots.take(refused)).toBe(false);
  expect(closed([...sockets, refused])).toEqual([false, false, false, true]);
});

it('a full port closes a connection of no use for a client whose connections are in use', async () => {
  stopClock();
  const { slots, sockets, clients, enter } = await setUp(FIRST, SECOND, FIRST, SECOND);
  const [, used, , alsoUsed] = sockets as [Socket, Socket, Socket, Socket];
  vi.advanceTimersByTime(3500);
  for (const socket of [used, alsoUsed]) {
    socket.resume();
    clients.get(socket)?.write('x'.repeat(500));
    await until(() => socket.bytesRead === 500, 'the bytes');
  }
  vi.advanceTimersByTime(1000);
  expect(slots.take(await enter(SECOND))).toBe(true);
  expect(closed(sockets)).toEqual([true, false, false, false]);
});

it('a full port replaces connections for one network only so often', async () => {
  stopClock();
  const { slots, enter } = await setUp();
  const replace = async () => {
    const socket = await enter(SECOND);
    const isTaken = slots.take(socket);
    slots.setEvictable(socket, true);
    return isTaken;
  };
  const results: boolean[] = [];
  for (let count = 0; count < 30; count++) results.push(await replace());
  expect(results).toEqual([...Array(10).fill(true), ...Array(20).fill(false)]);
  // Whoever tries again and again in an outage is not kept out long after it.
  vi.advanceTimersByTime(6000);
  expect(await replace()).toBe(true);
});
