import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { onTestFinished } from 'vitest';
import { freePorts } from './free-ports.ts';

/** Starts listening on a free port of 127.0.0.1; returns the port. */
export async function listening(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

/** The port of a server that closes every connection immediately, until the test ends. */
export async function takenPort(): Promise<number> {
  const server = createServer((socket) => socket.destroy());
  onTestFinished(() => void server.close());
  return listening(server);
}

/** The port of an HTTP server that answers every request, until the test ends. */
export async function webPort(): Promise<number> {
  const server = createHttpServer((_request, response) => response.end());
  onTestFinished(() => void server.close());
  return listening(server);
}

/** A port without a listener, outside the ephemeral range. */
export async function freePort(): Promise<number> {
  return (await freePorts(1)).first;
}
