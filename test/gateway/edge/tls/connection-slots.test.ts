import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { ConnectionSlots } from '../../../../src/gateway/edge/tls/connection-slots.ts';

/** Slots for three connections, all taken from one address. */
async function setUp() {
  const slots = new ConnectionSlots({ limit: 3, closeIdle: () => false });
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const enter = async (from: string): Promise<Socket> => {
    const { port } = server.address() as AddressInfo;
    const client = connect({ port, host: '127.0.0.1', localAddress: from }).on('error', () => {});
    onTestFinished(() => void client.destroy());
    const [socket] = (await once(server, 'connection')) as [Socket];
    return socket;
  };
  const sockets = [await enter('127.0.0.1'), await enter('127.0.0.1'), await enter('127.0.0.1')];
  for (const socket of sockets) expect(slots.take(socket)).toBe(true);
  return { slots, sockets, enter };
}
const closed = (sockets: Socket[]) => sockets.map((socket) => socket.destroyed);

it('a full port closes an unfinished handshake first', async () => {
  const { slots, sockets, enter } = await setUp();
  slots.allowEviction(sockets[1] as Socket);
  expect(slots.take(await enter('127.0.0.2'))).toBe(true);
  expect(closed(sockets)).toEqual([false, true, false]);
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
