import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { HalfClosedConnections } from '../../../src/agent/upstreams/upstream-relay.ts';
import { listening } from '../../support/loopback.ts';
import { until } from '../../support/until.ts';

/** Connections to an upstream that never ends one; its own side of them is in `theirs`. */
async function connectTo(count: number): Promise<{ ours: Socket[]; theirs: Socket[] }> {
  const theirs: Socket[] = [];
  const server = createServer({ allowHalfOpen: true }, (socket) => void theirs.push(socket.on('error', () => {})));
  const port = await listening(server);
  const ours = Array.from({ length: count }, () => connect({ port, host: '127.0.0.1', allowHalfOpen: true }).resume());
  onTestFinished(() => {
    for (const socket of [...ours, ...theirs]) socket.destroy();
    server.close();
  });
  await until(() => theirs.length === count, 'the connections');
  return { ours, theirs };
}

function setUp(ours: Socket[]) {
  const clock = { now: 0 };
  const halfClosed = new HalfClosedConnections(() => clock.now);
  const add = (sockets: Socket[]) => {
    for (const socket of sockets) halfClosed.add(socket, () => void givenUp.push(socket));
  };
  const addBlocked = (sockets: Socket[]) => {
    for (const socket of sockets) halfClosed.addBlocked(socket, () => void givenUp.push(socket));
  };
  const givenUp: Socket[] = [];
  const after = (ms: number) => {
    clock.now += ms;
    halfClosed.sweep();
    return ours.filter(({ destroyed }) => destroyed).length;
  };
  return { add, addBlocked, after, givenUp };
}

it('closes a connection whose client has ended its side when the upstream is silent for too long, and no other', async () => {
  const { ours, theirs } = await connectTo(3);
  const { add, after, givenUp } = setUp(ours);
  add(ours.slice(0, 2));
  expect(after(299_000)).toBe(0);
  theirs.find(({ remotePort }) => remotePort === ours[0]?.localPort)?.write('still at it');
  await once(ours[0] as Socket, 'data');
  expect([after(1_000), ours[1]?.destroyed]).toEqual([1, true]);
  expect([after(299_000), after(1_000)]).toEqual([1, 2]);
  expect(givenUp).toEqual([ours[1], ours[0]]);
});

it('keeps 64 of them when there are more, and those with the latest progress', async () => {
  const { ours } = await connectTo(100);
  const { add, after } = setUp(ours);
  add(ours.slice(0, 50));
  expect(after(900)).toBe(0);
  add(ours.slice(50));
  expect([after(100), after(5_000)]).toEqual([36, 36]);
  expect(ours.slice(50).filter(({ destroyed }) => destroyed)).toEqual([]);
});

it('closes a connection whose upstream reads nothing for too long: its client may have left unnoticed', async () => {
  const { ours, theirs } = await connectTo(70);
  const { add, addBlocked, after, givenUp } = setUp(ours);
  const [read, unread] = [ours[0] as Socket, ours[1] as Socket];
  for (const socket of [read, unread]) {
    for (const their of theirs) their.pause();
    socket.write(Buffer.alloc(20_000_000));
  }
  addBlocked([read, unread]);
  add(ours.slice(2));
  expect([after(900), after(100), unread.destroyed]).toEqual([0, 6, false]);
  theirs.find(({ remotePort }) => remotePort === read.localPort)?.resume();
  await once(read, 'drain');
  // 64 are left, which is not many, and one of them has nothing to send any longer.
  expect([after(20_000), read.destroyed, unread.destroyed]).toEqual([6, false, false]);
  const others = await connectTo(10);
  add(others.ours);
  expect([after(1_000), unread.destroyed]).toEqual([15, true]);
  expect(givenUp).toContain(unread);
});
