import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { EdgeCounters } from '../../../../src/gateway/metrics/edge-counters.ts';
import { NO_DIRECT_CLIENTS, TestEdge } from '../../../support/edge.ts';
import { ask } from '../../../support/http-request.ts';
import { block, type Fields, Flag, Frame, frame, RawHttp2, setting, uint32 } from '../../../support/raw-http2.ts';
import { unless } from '../../../support/requirements.ts';
import { until } from '../../../support/until.ts';
import { UPTIME_MS } from '../../../support/uptime.ts';

/** Short, but longer than a busy machine pauses: clients that behave well must not exceed them. */
const LIMITS = {
  headersTimeout: 1_500,
  progressTimeout: 1_500,
  pingTimeout: 1_500,
  keepAliveTimeout: 1_500,
  idleTimeout: 60_000,
};

/** What a client sends; what it sends again and again when it drips; what breaks the rules. */
interface Attack {
  begin: string | Buffer;
  drip: string | Buffer;
  error: string | Buffer;
  /** Left out: it does not read. */
  reads?: true;
}

const request = (method: string, path: string, more = '') =>
  `${method} ${path} HTTP/1.1\r\nHost: plain.localhost\r\n${more}\r\n`;
const error = '\0\r\n\r\n';
const HTTP1: Record<string, Attack> = {
  head: { begin: 'GET / HTTP/1.1\r\nHost: ', drip: 'a', error, reads: true },
  body: { begin: `${request('POST', '/slow', 'Content-Length: 9999\r\n')}a`, drip: 'a', error, reads: true },
  response: { begin: request('GET', '/endless'), drip: '', error },
  // Bytes behind a request fill what is read ahead: the nearest to a window.
  window: { begin: request('GET', '/slow') + 'a'.repeat(20_000), drip: 'a', error, reads: true },
  upgrade: { begin: request('GET', '/', 'Connection: Upgrade\r\nUpgrade: websocket\r\n'), drip: 'a', error },
};

const fields = (method: string, path: string): Fields => [
  [':method', method],
  [':scheme', 'https'],
  [':authority', 'secure.localhost'],
  [':path', path],
];
const get = (path: string) => frame(Frame.headers, Flag.endStream | Flag.endHeaders, 1, block(fields('GET', path)));
const window = (size: number) => frame(Frame.settings, 0, 0, setting(4, size));
const more = (stream: number, bytes: number) => frame(Frame.windowUpdate, 0, stream, uint32(bytes));
const WIDE = 0x7fff_0000;
/** DATA on a stream that the client has closed. */
const late = Buffer.concat([frame(Frame.data, Flag.endStream, 1, 'a'), frame(Frame.data, 0, 1, 'a')]);
const HTTP2: Record<string, Attack> = {
  head: {
    begin: frame(Frame.headers, Flag.endStream, 1, block(fields('GET', '/'))),
    drip: frame(Frame.continuation, 0, 1, block([['a', '']])),
    error: late,
    reads: true,
  },
  body: {
    begin: frame(Frame.headers, Flag.endHeaders, 1, block(fields('POST', '/slow'))),
    drip: frame(Frame.data, 0, 1, 'a'),
    error: late,
    reads: true,
  },
  response: { begin: Buffer.concat([window(WIDE), get('/endless')]), drip: more(0, 1), error: late, reads: true },
  window: { begin: Buffer.concat([window(0), get('/endless')]), drip: more(1, 1), error: late, reads: true },
  // HTTP/2 clients cannot switch protocols: bytes without end to a client that reads none are the nearest to it.
  upgrade: {
    begin: Buffer.concat([window(WIDE), more(0, WIDE), get('/endless')]),
    drip: frame(Frame.ping, 0, 0, 'whatever'),
    error: late,
  },
};
const BEHAVIOURS = ['stalls', 'drips', 'errors', 'leaves'] as const;

function flood(stream: Duplex | NodeJS.WritableStream): void {
  const write = () => {
    while (stream.write(Buffer.alloc(65_536)));
  };
  stream.on('error', () => {}).on('drain', write);
  write();
}
const respond: RequestListener = (req, res) => {
  req.resume();
  if (req.url === '/endless') flood(res);
  else if (req.url === '/') res.setHeader('connection', 'close').end('served');
};

/** Remembers by its port which connection is open. */
class OpenConnections extends EdgeCounters {
  readonly ports = new Set<number>();
  total = 0;
  override connected(socket: Socket): void {
    const port = socket.remotePort ?? 0;
    this.ports.add(port);
    this.total += 1;
    socket.once('close', () => this.ports.delete(port));
  }
}

const open = new Set<Socket>();
const timers: NodeJS.Timeout[] = [];
const { now } = performance;
afterEach(() => {
  performance.now = now;
  for (const timer of timers.splice(0)) clearInterval(timer);
  for (const socket of open) socket.destroy();
  open.clear();
});

function behave(socket: Socket, attack: Attack, behaviour: (typeof BEHAVIOURS)[number]): void {
  if (!attack.reads) socket.pause();
  socket.write(attack.begin);
  if (behaviour === 'drips') {
    timers.push(
      setInterval(() => {
        if (!attack.reads) socket.read(1);
        if (!socket.destroyed) socket.write(attack.drip);
      }, 20),
    );
  }
  if (behaviour === 'errors') timers.push(setTimeout(() => socket.write(attack.error), 50));
  if (behaviour === 'leaves') timers.push(setTimeout(() => socket.destroy(), 50));
}

// Clients of the wrong node that name no host stay there.
it.each([
  ['a young', 0],
  ['an old', UPTIME_MS],
])(
  'in %s process, no client keeps a place without progress, and others are served',
  unless(NO_DIRECT_CLIENTS),
  async (_age, uptime) => {
    const from = now.call(performance) - uptime;
    performance.now = () => now.call(performance) - from;
    const counters = new OpenConnections();
    const edge = await TestEdge.start({ httpLimits: LIMITS, counters });
    const server = createServer(respond).on('upgrade', (_req, socket: Duplex) => {
      socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
      flood(socket);
    });
    const endpoints = [
      await edge.serve('plain.localhost', server),
      await edge.serve('secure.localhost', respond, { protocol: 'https' }),
    ];
    const ports = new Map<number | undefined, string>();
    for (const behaviour of BEHAVIOURS) {
      for (const [place, attack] of Object.entries(HTTP1)) {
        const socket = edge.connect();
        open.add(socket);
        await once(socket, 'connect');
        ports.set(socket.localPort, `HTTP/1 ${place} ${behaviour}`);
        if (attack.reads) socket.resume();
        behave(socket, attack, behaviour);
      }
      for (const [place, attack] of Object.entries(HTTP2)) {
        const { socket } = await RawHttp2.open(edge, 'secure.localhost');
        open.add(socket);
        ports.set(socket.localPort, `HTTP/2 ${place} ${behaviour}`);
        behave(socket, attack, behaviour);
      }
    }
    await until(() => counters.total >= ports.size, 'all clients are connected');
    const left = () => [...counters.ports].flatMap((port) => ports.get(port) ?? []);
    for (const end = performance.now() + 30_000; left().length > 0 && performance.now() < end; await delay(50)) {
      expect((await ask(edge.httpPort, 'plain.localhost')).body).toBe('served');
    }
    expect(left()).toEqual([]);
    const streams = () => endpoints.flatMap((endpoint) => endpoint.streams);
    await until(() => streams().every(({ destroyed }) => destroyed), 'all streams to the upstream are closed');
    await edge.close();
  },
);

it('an HTTP/2 client that takes little at a time, but steadily, gets all of a response', async () => {
  const size = 300_000;
  const edge = await TestEdge.start({ httpLimits: LIMITS });
  await edge.serve('secure.localhost', (_req, res) => res.end(Buffer.alloc(size)), { protocol: 'https' });
  const client = await RawHttp2.open(edge, 'secure.localhost');
  open.add(client.socket);
  client.socket.write(Buffer.concat([window(0), more(0, WIDE), get('/')]));
  timers.push(setInterval(() => client.socket.write(more(1, 8192)), 60));
  let taken = 0;
  for (let ended = false; !ended; ) {
    const received = await client.next(({ stream }) => stream === 1);
    if (received === null || received.type === Frame.reset) break;
    if (received.type === Frame.data) taken += received.payload.length;
    ended = (received.flags & Flag.endStream) !== 0;
  }
  expect(taken).toBe(size);
  await edge.close();
});
