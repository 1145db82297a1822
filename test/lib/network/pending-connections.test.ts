import type { Socket } from 'node:net';
import { expect, it } from 'vitest';
import {
  type PendingConnection,
  PendingConnections,
  PendingHandshake,
  PendingStage,
} from '../../../src/lib/network/pending-connections.ts';

const at = (stage: PendingStage) => (address: string) => ({ address, stage });
const silent = at(PendingStage.silent);
const begun = at(PendingStage.begun);
const answered = at(PendingStage.answered);
const waiting = at(PendingStage.waiting);
const [ONE, OTHER, THIRD] = ['192.0.2.1', '192.0.2.2', '192.0.2.3'];
const many = (count: number, one: (index: number) => PendingConnection) =>
  Array.from({ length: count }, (_, index) => one(index));

it.each<[string, PendingConnection[], number]>([
  ['the oldest silent one', [begun(ONE), silent(OTHER), silent(THIRD)], 1],
  ['one of the network with the most, although others are silent', [silent(ONE), waiting(OTHER), waiting(OTHER)], 2],
  ['the oldest of that IPv6 network', [begun(ONE), begun('2001:db8::1'), begun('2001:db8::2')], 1],
  ['the one that has sent less, of that network', [silent(ONE), answered(OTHER), begun(OTHER)], 2],
  ['one that has to go on, rather than one that waits', [waiting(ONE), answered(OTHER), waiting(THIRD)], 1],
  ['the newest, when all wait', [waiting(ONE), waiting(OTHER), waiting(THIRD)], 2],
  ['the oldest, when all have sent a part', [begun(ONE), begun(OTHER), begun(THIRD)], 0],
  [
    'a silent one, when the networks have few each',
    [answered(ONE), answered(ONE), ...many(126, (index) => silent(`198.51.100.${index}`))],
    2,
  ],
  [
    'one of the larger network, when the networks have few each and all are equally far',
    [begun(ONE), ...many(126, (index) => begun(`198.51.100.${index}`)), begun('198.51.100.7')],
    8,
  ],
])('at the limit, a new connection displaces %s', (_what, connections, displaced) => {
  const dropped: PendingConnection[] = [];
  const limit = connections.length;
  let now = 0;
  const pending = new PendingConnections<PendingConnection>(
    () => limit,
    (connection) => void dropped.push(connection),
    () => now,
  );
  for (const connection of connections) pending.add(connection);
  expect(dropped).toEqual([]);
  now = 1000;
  pending.add(silent('192.0.2.9'));
  expect(dropped).toEqual([connections[displaced]]);
});

it('a connection that has just come is not taken for a silent one, unless its network is a crowd', () => {
  const dropped: PendingConnection[] = [];
  const pending = new PendingConnections<PendingConnection>(
    () => 3,
    (connection) => void dropped.push(connection),
  );
  const [old, fresh] = [begun(ONE), silent(OTHER)];
  for (const connection of [old, begun(THIRD), fresh, silent(OTHER), silent('192.0.2.9')]) pending.add(connection);
  expect(dropped).toEqual([old, fresh]);
});

it('a network that would have as many as the largest one loses its own connection, if that is less far', () => {
  const dropped: PendingConnection[] = [];
  const pending = new PendingConnections<PendingConnection>(
    () => 4,
    (connection) => void dropped.push(connection),
  );
  const [first, second, third, fourth] = [begun(OTHER), waiting(ONE), waiting(ONE), begun(THIRD)];
  for (const connection of [first, second, third, fourth, silent(OTHER)]) pending.add(connection);
  expect(dropped).toEqual([first]);
});

it('a connection is silent until its client has sent something, after what a load balancer has said of it', () => {
  const socket = { remoteAddress: ONE, bytesRead: 28, readableLength: 0 };
  const handshake = new PendingHandshake(socket as Socket);
  expect(handshake.stage).toBe(PendingStage.silent);
  socket.bytesRead += 1;
  expect(handshake.stage).toBe(PendingStage.begun);
});

it('a connection that was dropped or deleted counts no more', () => {
  const dropped: PendingConnection[] = [];
  const pending = new PendingConnections<PendingConnection>(
    () => 2,
    (connection) => void dropped.push(connection),
  );
  const [first, second, third, fourth] = [begun(ONE), begun(ONE), begun(OTHER), begun(OTHER)];
  for (const connection of [first, second, third]) pending.add(connection);
  pending.delete(first);
  pending.delete(second);
  pending.add(fourth);
  expect(dropped).toEqual([first]);
});
