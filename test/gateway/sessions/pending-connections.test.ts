import { expect, it } from 'vitest';
import { type PendingConnection, PendingConnections } from '../../../src/gateway/sessions/pending-connections.ts';

const talking = (address: string) => ({ address, isSilent: false, isWaiting: false });
const silent = (address: string) => ({ address, isSilent: true, isWaiting: false });
const waiting = (address: string) => ({ address, isSilent: false, isWaiting: true });

it.each<[string, PendingConnection[], number]>([
  ['the oldest silent one', [talking('192.0.2.1'), silent('192.0.2.2'), silent('192.0.2.3')], 1],
  ['a silent one of the address with the most', [silent('192.0.2.1'), silent('192.0.2.2'), silent('192.0.2.2')], 1],
  [
    'the oldest of the IPv6 network with the most, when none is silent',
    [talking('192.0.2.1'), talking('2001:db8::1'), talking('2001:db8::2')],
    1,
  ],
  ['one that the gateway waits for', [waiting('192.0.2.1'), talking('192.0.2.2'), waiting('192.0.2.3')], 1],
  ['the newest, when all wait for the gateway', [waiting('192.0.2.1'), waiting('192.0.2.2'), waiting('192.0.2.3')], 2],
  ['the oldest, when all have sent something', [talking('192.0.2.1'), talking('192.0.2.2'), talking('192.0.2.3')], 0],
])('at the limit, a new connection displaces %s', (_what, connections, displaced) => {
  const dropped: PendingConnection[] = [];
  const pending = new PendingConnections<PendingConnection>(3, (connection) => void dropped.push(connection));
  for (const connection of connections) pending.add(connection);
  expect(dropped).toEqual([]);
  pending.add(silent('192.0.2.9'));
  expect(dropped).toEqual([connections[displaced]]);
});
