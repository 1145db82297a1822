import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { connectBySocks } from '../../../src/lib/network/socks.ts';
import { listening } from '../../support/loopback.ts';

it('a connection through a SOCKS proxy keeps what follows its answer, and no listeners', async () => {
  const server = createServer(async (client) => {
    const answers = ['05 02', '01 00', '05 00 00 03 04 68 65 72 65 00 01', '68 69'];
    client.on('error', () => {}).write(Buffer.from(answers.join('').replaceAll(' ', ''), 'hex'));
  });
  onTestFinished(() => void server.close());
  const socket: Socket = connect(await listening(server), '127.0.0.1').on('error', () => {});
  onTestFinished(() => void socket.destroy());
  await once(socket, 'connect');
  const listeners = () => socket.eventNames().map((name) => [name, socket.listenerCount(name)]);
  const before = listeners();
  await connectBySocks(socket, { host: 'cam.lan', port: 80 }, { user: 'me', password: 'secret' });
  expect(listeners()).toEqual(before);
  expect(String(socket.read())).toBe('hi');
});
