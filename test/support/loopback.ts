import { once } from 'node:events';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { onTestFinished } from 'vitest';
import { freePorts } from './free-ports.ts';

/** Lets the server listen on any free port of 127.0.0.1; returns the port. */
export async function listening(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

/** A port on which a server listens until the test ends; it closes every connection at once. */
export async function takenPort(): Promise<number> {
  const server = createServer((socket) => socket.destroy());
  onTestFinished(() => void server.close());
  return listening(server);
}

/** A port on which nothing listens, outside the range that the system gives out. */
export async function freePort(): Promise<number> {
  return (await freePorts(1)).first;
}
