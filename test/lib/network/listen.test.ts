import { createServer, type Server } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { heldSockets, isAt } from '../../../src/lib/network/listen.ts';
import { listening } from '../../support/loopback.ts';

const fdOf = (server: Server) => (server as Server & { _handle: { fd: number } })._handle.fd;

it.each(['127.0.0.1', '0.0.0.0', '::1', '::'])('a held socket at %s has its address and port', async (host) => {
  const server = createServer().listen(0, host);
  onTestFinished(() => void server.close());
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as { port: number };
  const [socket] = heldSockets([fdOf(server)]);
  if (!socket) throw new Error('no socket');
  expect(socket).toEqual({ fd: fdOf(server), host, port });
  expect(isAt(socket, { host, port })).toBe(true);
  expect(isAt(socket, { host, port: port + 1 })).toBe(false);
  expect(isAt(socket, { host: '127.0.0.2', port })).toBe(false);
});

it('a descriptor that is no listening TCP socket is an error that says what to use', async () => {
  const server = createServer();
  onTestFinished(() => void server.close());
  await listening(server);
  expect(() => heldSockets([fdOf(server), 2])).toThrow(
    'file descriptor 2 of systemd is not a listening TCP socket: use ListenStream= with a port and Accept=no',
  );
});
