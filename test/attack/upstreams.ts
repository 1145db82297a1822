import { createServer as createHttpServer } from 'node:http';
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https';
import { createServer, type Server, type Socket } from 'node:net';
import { type Attack, openTls, repeat } from './attack.ts';
import type { KeyPair } from './costly-certificates.ts';

/** The upstream of the honest agents: `/bytes/<n>`, `/wait/<ms>`; otherwise it echoes path and length of the body. */
export function honestUpstream(): Server {
  return createHttpServer((req, res) => {
    const [, kind, number] = (req.url ?? '').split('/');
    let received = 0;
    req.on('data', (piece: Buffer) => {
      received += piece.length;
    });
    req.on('end', () => {
      if (kind === 'bytes') res.end(Buffer.alloc(Number(number), 'x'));
      else if (kind === 'wait') setTimeout(() => res.end('waited'), Number(number));
      else res.end(`${req.url} ${received}`);
    });
  });
}

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

/** What a broken upstream does to a request. */
const BREAKS: ((socket: Socket) => void)[] = [
  // Late bytes look like the answer to the next request.
  (socket) => {
    socket.write(OK);
    setTimeout(() => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen'), 20);
  },
  (socket) => socket.write(`HTTP/1.1 204 No Content\r\n\r\nlate${OK}`),
  (socket) => socket.destroy(),
  (socket) => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf'),
  (socket) => socket.end('not HTTP at all\r\n\r\n'),
  (socket) => socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n'),
  (socket) => socket.write(`HTTP/1.1 200 OK\r\nX: ${'x'.repeat(200_000)}`),
  // Answers nothing.
  () => {},
  (socket) => socket.write(`HTTP/1.1 100 Continue\r\n\r\n`.repeat(1000)),
];

/** An upstream that treats each request in another wrong way. */
export function brokenUpstream(): Server {
  let count = 0;
  return createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', () => BREAKS[count++ % BREAKS.length]?.(socket));
  });
}

/** Milliseconds after which a server at the other end of the internet answers. */
const FAR_MS = 50;

/** Stands in for Amazon's message service: it has none of the documents that attackers make the gateway ask for. */
export function amazon({ cert, key }: KeyPair): HttpsServer {
  return createHttpsServer({ cert, key }, (_req, res) => void setTimeout(() => res.writeHead(404).end(), FAR_MS));
}

/** Clients of the broken upstream. */
export const UPSTREAM_ATTACKS: Attack[] = [
  {
    name: 'broken upstream: late bytes, closes, lies, silence',
    width: 10,
    async live(life) {
      const host = life.target.brokenHost;
      const socket = await openTls(life.target.httpsPort, host, life);
      await repeat(socket, 500, () => socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`));
    },
  },
];
