import { once } from 'node:events';
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { TestEdge } from '../support/edge.ts';
import { ask } from '../support/http-request.ts';
import { FULL } from './rounds.ts';

let edge: TestEdge;
const open: Socket[] = [];
beforeAll(async () => {
  // However slow the machine: the first ones are asked again after all others have come.
  edge = await TestEdge.start({ httpLimits: { keepAliveTimeout: 600_000, idleTimeout: 600_000 } });
  await edge.serve('plain.localhost', (_req, res) => res.end('served'));
  await edge.serve('secure.localhost', (_req, res) => res.end('served'), { protocol: 'https' });
});
afterAll(async () => {
  for (const socket of open) socket.destroy();
  await edge.close();
});

/** Asks on a connection that stays; resolves with whether it was answered. */
async function isServed(socket: Socket, host: string): Promise<boolean> {
  socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  const [answer] = (await once(socket, 'data')) as [Buffer];
  return answer.toString().startsWith('HTTP/1.1 200') && answer.toString().endsWith('served');
}

const enterTls = (): Socket => {
  const target = { host: '127.0.0.1', port: edge.httpsPort, servername: 'secure.localhost', ca: edge.ca.caPem };
  return connectTls(target).on('error', () => {});
};

it.each([
  ['plain', FULL ? 4000 : 400, (): Socket => edge.connect()],
  ['secure', FULL ? 2000 : 50, enterTls],
])(
  '%s connections that idle after a request, %i of them, take nothing from each other or from who comes next',
  async (name, number, enter) => {
    const host = `${name}.localhost`;
    const sockets: Socket[] = [];
    while (sockets.length < number) {
      const batch = Array.from({ length: 50 }, enter);
      open.push(...batch);
      expect(await Promise.all(batch.map((socket) => isServed(socket, host)))).toEqual(Array(50).fill(true));
      sockets.push(...batch);
    }
    expect((await ask(edge.httpPort, 'plain.localhost')).body).toBe('served');
    for (let at = 0; at < number; at += 50) {
      const batch = sockets.slice(at, at + 50);
      expect(await Promise.all(batch.map((socket) => isServed(socket, host)))).toEqual(Array(50).fill(true));
    }
  },
  300_000,
);
