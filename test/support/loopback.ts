import { once } from 'node:events';
import { createServer as createHttpServer, type Server as HttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { onTestFinished } from 'vitest';
import { freePorts } from './free-ports.ts';

/** Starts listening on a free port of 127.0.0.1; returns the port. */
export async function listening(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

/** The same until the end of the test. */
export async function serving(server: Server): Promise<number> {
  onTestFinished(() => {
    if ('closeAllConnections' in server) (server as HttpServer).closeAllConnections();
    server.close();
  });
  return listening(server);
}

/** The port of a server that closes every connection immediately, until the test ends. */
export function takenPort(): Promise<number> {
  return serving(createServer((socket) => socket.destroy()));
}

/** The port of an HTTP server that answers every request, until the test ends. */
export function webPort(): Promise<number> {
  return serving(createHttpServer((_request, response) => response.end()));
}

/** A port without a listener, outside the ephemeral range. */
export async function freePort(): Promise<number> {
  return (await freePorts(1)).first;
}
