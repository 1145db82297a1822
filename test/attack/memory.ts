import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, connect, type Server, type Socket } from 'node:net';
import { createInterface, type Interface } from 'node:readline';
import { setTimeout as wait } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { fileURLToPath } from 'node:url';
import { FrameWriter } from '../../src/agent-protocol/frames.ts';
import { block, type Fields, Flag, Frame, frame, PREFACE, uint32 } from '../support/raw-http2.ts';
import { helloOf } from '../support/tls-records.ts';

const HOST = '127.0.0.1';
const KIB = 1024;
const MIB = KIB * KIB;
/** Times that more, or less, may be used than is counted. */
const MOST = 1.5;

interface Ports {
  httpPort: number;
  httpsPort: number;
  /** Of connections of agents, by what the gateway does with their streams. */
  agentPorts: Record<AgentKind, number>;
}

type AgentKind = 'unread' | 'unsent' | 'echoing';

/** What the edge counts, and what its process takes, in bytes. */
interface Figures {
  counted: number;
  used: number;
}

/** A way to make the edge hold memory. */
interface Filling {
  name: string;
  connections: number;
  /** The endpoint; `s` behind its name for HTTPS. Opens HTTP/2 when it is said so. */
  host: string;
  http2?: boolean;
  /** What each connection sends, piece by piece. */
  pieces(): (Buffer | string)[];
  /** Left out: pieces follow each other at once. */
  pauseMs?: number;
  /** Whether the connections read. */
  reads?: boolean;
  /** The connections are those of agents. */
  agents?: AgentKind;
  /** The connections are those of TLS clients, whose handshake is among the pieces. */
  raw?: boolean;
  /** What is limited by number rather than by bytes: what each connection is said to take, in KiB. */
  eachKib?: number;
  /** Counts the connections themselves too. */
  opens?: boolean;
}

const head = (line: string, host: string, more = '') => `${line} HTTP/1.1\r\nHost: ${host}.localhost\r\n${more}`;
const times = <T>(count: number, make: (index: number) => T): T[] =>
  Array.from({ length: count }, (_, index) => make(index));
const fields = (host: string, method: string, more: Fields = []): Fields => [
  [':method', method],
  [':scheme', 'https'],
  [':authority', `${host}.localhost`],
  [':path', '/'],
  ...more,
];
const long = (count: number, length: number): Fields => times(count, (at) => [`x-${at}`, 'a'.repeat(length)]);
const chunk = (bytes: number) => `${bytes.toString(16)}\r\n${'x'.repeat(bytes)}\r\n`;
const start = (host: string, stream: number) =>
  frame(Frame.headers, Flag.endHeaders, stream, block(fields(host, 'POST')));
const STREAMS = times(100, (at) => 1 + 2 * at);

/** Frames of an agent on streams that it opens. */
function muxFrames(streams: number, sizes: number[]): Buffer[] {
  return times(streams, (at) => {
    const writer = new FrameWriter();
    sizes.forEach((size, part) => {
      writer.data(1 + 2 * at, [Buffer.alloc(size, 'x')], size, { syn: part === 0, fin: false });
    });
    return Buffer.concat(writer.take());
  });
}

/** Headers that both sides keep in their tables for compression (RFC 7541, 6.2.1): names and values are short. */
const indexed = (count: number): Buffer =>
  Buffer.concat(
    times(count, (at) => Buffer.from([0x40, 2, ...Buffer.from(at.toString(36).padStart(2, 'x')), 1, 0x61])),
  );

/** The beginning of a ClientHello of 16 KiB. */
const BEGUN_HELLO = Buffer.concat([Buffer.of(22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3), Buffer.alloc(15_000)]);
const HELLO = await helloOf({ servername: 'silents.localhost' });

const FILLINGS: Filling[] = [
  {
    name: 'unfinished heads of 60 KiB, in pieces of 4 KiB',
    connections: 1000,
    host: 'silent',
    pieces: () => [head('GET /', 'silent'), ...times(15, () => `X-Much: ${'x'.repeat(4000)}\r\n`)],
    pauseMs: 30,
  },
  {
    name: 'unfinished heads of 60 KiB, in pieces of 500 bytes',
    connections: 500,
    host: 'silent',
    pieces: () => [head('GET /', 'silent'), ...times(120, () => `X-Much: ${'x'.repeat(490)}\r\n`)],
    pauseMs: 5,
  },
  {
    name: 'unfinished heads of 7 KiB',
    connections: 3000,
    host: 'silent',
    pieces: () => [head('GET /', 'silent'), `X-Much: ${'x'.repeat(7000)}\r\n`],
    pauseMs: 5,
  },
  {
    name: 'unfinished heads of 60 KiB over TLS',
    connections: 500,
    host: 'silents',
    pieces: () => [head('GET /', 'silents'), ...times(15, () => `X-Much: ${'x'.repeat(4000)}\r\n`)],
    pauseMs: 30,
  },
  {
    name: 'heads of 60 KiB that wait for the upstream',
    connections: 1000,
    host: 'silent',
    pieces: () => [`${head('GET /', 'silent')}${times(15, (at) => `X-${at}: ${'x'.repeat(4000)}\r\n`).join('')}\r\n`],
  },
  {
    name: 'heads of 190 headers that wait for the upstream',
    connections: 1000,
    host: 'silent',
    pieces: () => [`${head('GET /', 'silent')}${times(190, (at) => `X-${at}: ${'x'.repeat(300)}\r\n`).join('')}\r\n`],
  },
  {
    name: 'unfinished trailers of 60 KiB',
    connections: 1000,
    host: 'silent',
    pieces: () => [
      `${head('POST /', 'silent', 'Transfer-Encoding: chunked\r\n')}\r\n0\r\n`,
      ...times(15, () => `X-Much: ${'x'.repeat(4000)}\r\n`),
    ],
    pauseMs: 30,
  },
  {
    name: 'bodies that the upstream does not read',
    connections: 300,
    host: 'silent',
    pieces: () => [
      `${head('POST /', 'silent', 'Content-Length: 100000000\r\n')}\r\n`,
      ...times(16, () => 'x'.repeat(64 * KIB)),
    ],
  },
  {
    name: 'bodies in chunks of one byte that the upstream does not read',
    connections: 100,
    host: 'silent',
    pieces: () => [
      `${head('POST /', 'silent', 'Transfer-Encoding: chunked\r\n')}\r\n`,
      ...times(64, () => chunk(1).repeat(10_000)),
    ],
  },
  {
    name: 'pipelined requests behind one that waits',
    connections: 1000,
    host: 'silent',
    pieces: () => [`${head('GET /', 'silent')}\r\n`, ...times(8, () => `${head('GET /', 'silent')}\r\n`.repeat(40))],
    pauseMs: 20,
  },
  {
    name: 'unfinished heads of responses of 60 KiB',
    connections: 1000,
    host: 'beginning',
    pieces: () => [`${head('GET /', 'beginning')}\r\n`],
  },
  {
    name: 'responses that are not read',
    connections: 300,
    host: 'answering',
    pieces: () => [`${head('GET /much', 'answering')}\r\n`],
    reads: false,
  },
  {
    name: 'responses that are not read, over TLS',
    connections: 300,
    host: 'answerings',
    pieces: () => [`${head('GET /much', 'answerings')}\r\n`],
    reads: false,
  },
  {
    name: 'HTTP/2: unfinished heads of 60 KiB',
    connections: 500,
    host: 'silents',
    http2: true,
    pieces: () => [
      frame(Frame.headers, Flag.endStream, 1, block(fields('silents', 'GET'))),
      ...long(7, 8000).map((field) => frame(Frame.continuation, 0, 1, block([field]))),
    ],
    pauseMs: 30,
  },
  {
    name: 'HTTP/2: heads of 60 KiB that wait for the upstream',
    connections: 20,
    host: 'silents',
    http2: true,
    pieces: () => STREAMS.flatMap((id) => headers('silents', 'GET', id, long(15, 4000))),
  },
  {
    name: 'HTTP/2: small requests that wait for the upstream',
    connections: 100,
    host: 'silents',
    http2: true,
    pieces: () => STREAMS.flatMap((id) => headers('silents', 'GET', id, [])),
  },
  {
    name: 'HTTP/2: bodies that the upstream does not read',
    connections: 20,
    host: 'silents',
    http2: true,
    pieces: () => [
      ...STREAMS.map((id) => start('silents', id)),
      ...STREAMS.slice(0, 64).map((id) => frame(Frame.data, 0, id, Buffer.alloc(16_000))),
    ],
  },
  {
    name: 'HTTP/2: bodies in frames of one byte that the upstream does not read',
    connections: 100,
    host: 'silents',
    http2: true,
    pieces: () => [
      start('silents', 1),
      ...times(20, () => Buffer.concat(times(1000, () => frame(Frame.data, 0, 1, 'a')))),
    ],
  },
  {
    name: 'HTTP/2: bodies of one byte between frames that are ignored',
    connections: 40,
    host: 'silents',
    http2: true,
    pieces: () => [
      start('silents', 1),
      // Frames of unknown types are ignored (RFC 9113, 4.1).
      ...times(1500, () => Buffer.concat([frame(Frame.data, 0, 1, 'a'), frame(0xfa, 0, 0, Buffer.alloc(16_000))])),
    ],
    pauseMs: 5,
  },
  {
    name: 'HTTP/2: responses that are not read',
    connections: 20,
    host: 'answerings',
    http2: true,
    pieces: () => [
      frame(Frame.settings, 0, 0, Buffer.concat([Buffer.of(0, 4), uint32(0x7fffffff)])),
      frame(Frame.windowUpdate, 0, 0, uint32(0x7fff0000 - 65_535)),
      ...STREAMS.slice(0, 30).flatMap((id) => headers('answerings', 'GET', id, [], '/much')),
    ],
    reads: false,
  },
  {
    name: 'HTTP/2: responses without a window',
    connections: 20,
    host: 'answerings',
    http2: true,
    pieces: () => [
      frame(Frame.settings, 0, 0, Buffer.concat([Buffer.of(0, 4), uint32(0)])),
      ...STREAMS.slice(0, 30).flatMap((id) => headers('answerings', 'GET', id, [], '/much')),
    ],
  },
  {
    name: 'streams of agents that are not read',
    connections: 10,
    host: '',
    agents: 'unread',
    pieces: () => muxFrames(1, [1]),
    reads: false,
  },
  {
    name: 'streams of agents that clients do not read',
    connections: 30,
    host: '',
    agents: 'unsent',
    pieces: () => muxFrames(20, [60_000, 60_000, 60_000, 60_000]),
  },
  {
    name: 'echoes of heartbeats that agents do not read',
    connections: 30,
    host: '',
    agents: 'echoing',
    pieces: () => [
      ...muxFrames(
        1,
        times(2000, () => 1000),
      ),
    ],
    reads: false,
  },
  {
    name: 'unfinished ClientHellos of 15 KiB',
    connections: 1000,
    host: '',
    raw: true,
    opens: true,
    eachKib: 22,
    pieces: () => [BEGUN_HELLO],
  },
  {
    name: 'unfinished handshakes',
    connections: 1000,
    host: '',
    raw: true,
    opens: true,
    eachKib: 57,
    pieces: () => [HELLO],
  },
  {
    name: 'TLS connections that have received much',
    connections: 300,
    host: 'silents',
    opens: true,
    eachKib: 44,
    pieces: () => times(3, () => `${head('POST /', 'nobody', 'Content-Length: 300000\r\n')}\r\n${'x'.repeat(300_000)}`),
    pauseMs: 1000,
  },
  {
    name: 'HTTP/2: tables for header compression',
    connections: 500,
    host: 'silents',
    http2: true,
    eachKib: 54,
    pieces: () => [
      frame(
        Frame.headers,
        Flag.endStream | Flag.endHeaders,
        1,
        Buffer.concat([block(fields('nobody', 'GET')), indexed(120)]),
      ),
    ],
  },
  {
    name: 'bodies that policies read',
    connections: 30,
    host: 'webhook',
    pieces: () => [
      `${head('POST /', 'webhook', 'X-Hub-Signature-256: sha256=00\r\nContent-Length: 1000000\r\n')}\r\n`,
      ...times(9, () => 'x'.repeat(100_000)),
    ],
    pauseMs: 30,
  },
  {
    name: 'unfinished messages of event streams of 60 KiB that policies read',
    connections: 300,
    host: 'message',
    pieces: () => [`${head('GET /', 'message')}\r\n`],
  },
  {
    name: 'responses in pieces of one byte that policies read',
    connections: 100,
    host: 'crumb',
    pieces: () => [`${head('GET /', 'crumb')}\r\n`],
  },
  {
    name: 'variables of requests that wait',
    connections: 300,
    host: 'variable',
    pieces: () => [
      `${head(`POST /?${'a'.repeat(600)}`, 'variable', 'X-Hub-Signature-256: sha256=00\r\nContent-Length: 9\r\n')}\r\n`,
    ],
  },
  {
    name: 'headers of 60 KiB that a policy adds to requests that wait for the upstream',
    connections: 300,
    host: 'header',
    pieces: () => [`${head(`GET /?${'a'.repeat(6000)}`, 'header')}\r\n`],
  },
  {
    name: 'requests with 10,000 parameters, which a policy has read, that wait for the upstream',
    connections: 300,
    host: 'parsed',
    pieces: () => [`${head(`GET /?${'a&'.repeat(10_000)}`, 'parsed')}\r\n`],
  },
  {
    name: 'connections that have become WebSockets, with heads of 60 KiB',
    connections: 500,
    host: 'upgraded',
    eachKib: 10,
    pieces: () => [
      `${head('GET /', 'upgraded', 'Connection: Upgrade\r\nUpgrade: websocket\r\n')}${times(15, (at) => `X-${at}: ${'x'.repeat(4000)}\r\n`).join('')}\r\n`,
    ],
  },
  {
    name: 'bodies in pieces of one byte that policies read',
    connections: 20,
    host: 'webhook',
    pieces: () => [
      `${head('POST /', 'webhook', 'X-Hub-Signature-256: sha256=00\r\nTransfer-Encoding: chunked\r\n')}\r\n`,
      ...times(200, () => chunk(1).repeat(1000)),
    ],
    pauseMs: 30,
  },
];

/** Frames of a head; a frame has 16 KiB at most. */
function headers(host: string, method: string, id: number, more: Fields, path = '/'): Buffer[] {
  const bytes = block(fields(host, method, more).map(([name, value]) => [name, name === ':path' ? path : value]));
  const parts = times(Math.ceil(bytes.length / 16_000), (at) => bytes.subarray(at * 16_000, (at + 1) * 16_000));
  const flags = (at: number) => (at === parts.length - 1 ? Flag.endHeaders : 0) | (at === 0 ? Flag.endStream : 0);
  return parts.map((part, at) => frame(at === 0 ? Frame.headers : Frame.continuation, flags(at), id, part));
}

/**
 * `npm run memory [-- name]`: makes an edge hold what its budgets count, in each way that clients have, and compares what is
 * counted with what is used. Fails when they differ by more than half.
 */
async function main([only = '']: string[]): Promise<number> {
  if (process.platform !== 'linux') throw new Error('the figures come from /proc: run it on Linux');
  const port = await listening(answers());
  let failed = 0;
  process.stdout.write(
    '| held | connections | counted (MiB) | used (MiB) | used / counted |\n| --- | ---: | ---: | ---: | ---: |\n',
  );
  for (const filling of FILLINGS.filter(({ name }) => name.includes(only))) {
    const { counted, used } = await measure(filling, port);
    const ratio = used / counted;
    if (!(ratio < MOST && ratio > 1 / MOST)) failed += 1;
    const figures = [counted / MIB, used / MIB].map((mib) => mib.toFixed(1)).join(' | ');
    process.stdout.write(`| ${filling.name} | ${filling.connections} | ${figures} | ${ratio.toFixed(2)} |\n`);
  }
  return failed === 0 ? 0 : 1;
}

function answers(): Server {
  const page = Buffer.alloc(64 * KIB, 'x');
  return createHttpServer((req, res) => {
    req.resume();
    if (req.url === '/late') return;
    const more = () => {
      while (res.write(page));
    };
    res.writeHead(200, { 'content-type': 'text/plain' }).on('drain', more);
    more();
  });
}

async function listening(server: Server): Promise<number> {
  server.listen(0, HOST);
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

async function measure(filling: Filling, upstream: number): Promise<Figures> {
  const script = fileURLToPath(new URL('memory-edge.js', import.meta.url));
  const flags = ['--max-semi-space-size=1', '--v8-pool-size=1', '--expose-gc'];
  const child = spawn(process.execPath, [...flags, script, String(upstream)], {
    stdio: ['pipe', 'pipe', 'inherit'],
    // What is freed goes back to the system at once: the figures show what is held.
    env: { ...process.env, MALLOC_MMAP_THRESHOLD_: '4096', MALLOC_TRIM_THRESHOLD_: '0' },
  });
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
  child.once('exit', () => lines.emit('error', new Error('the edge has ended')));
  const ports = (await next(lines)) as Ports;
  const { connections, eachKib = 0 } = filling;
  const sockets: Socket[] = [];
  try {
    // One of each kind loads what is loaded once.
    sockets.push(await open(filling, ports));
    await send(filling, sockets);
    sockets.pop()?.destroy();
    const atFirst = await figures(child, lines);
    // Connections are limited by number.
    while (sockets.length < connections) sockets.push(await open(filling, ports));
    await wait(1500);
    const before = filling.opens ? atFirst : await figures(child, lines);
    await send(filling, sockets);
    const after = await settled(child, lines);
    const left = sockets.filter(({ destroyed }) => !destroyed).length;
    if (left < connections) process.stdout.write(`only ${left} connections are left\n`);
    const counted = after.counted - before.counted + connections * eachKib * KIB;
    return { counted, used: after.used - before.used };
  } finally {
    for (const socket of sockets) socket.destroy();
    child.removeAllListeners('exit').kill('SIGKILL');
  }
}

async function open(filling: Filling, ports: Ports): Promise<Socket> {
  const { host, http2, reads, agents, raw } = filling;
  const secure = host.endsWith('s') || agents !== undefined;
  const tls = { servername: `${host}.localhost`, ALPNProtocols: [http2 ? 'h2' : 'http/1.1'] };
  const port = agents === undefined ? ports.httpsPort : ports.agentPorts[agents];
  const socket = secure
    ? connectTls({ host: HOST, port, rejectUnauthorized: false, ...(agents === undefined && tls) })
    : connect(raw ? ports.httpsPort : ports.httpPort, HOST);
  socket.on('error', () => {});
  await once(socket, secure ? 'secureConnect' : 'connect');
  socket.resume();
  if (http2) socket.write(Buffer.concat([Buffer.from(PREFACE), frame(Frame.settings, 0, 0)]));
  else if (agents === undefined && !raw) await askOften(socket, secure ? 20 : 1);
  if (reads === false) socket.pause();
  return socket;
}

/** OpenSSL keeps its buffers once it has read. */
async function askOften(socket: Socket, count: number): Promise<void> {
  for (let asked = 0; asked < count; asked += 1) {
    socket.write(`${head('GET /', 'nobody', `X-Much: ${'x'.repeat(4000)}\r\n`)}\r\n`);
    await once(socket, 'data');
  }
}

async function send({ pieces, pauseMs = 0 }: Filling, sockets: Socket[]): Promise<void> {
  for (const piece of pieces()) {
    for (const socket of sockets) socket.write(piece);
    await wait(pauseMs);
  }
}

/** The figures once nothing moves any more. */
async function settled(child: ChildProcess, lines: Interface): Promise<Figures> {
  let last = await figures(child, lines);
  for (let attempt = 0; attempt < 20; attempt += 1) {
    // Longer than a sweep, which counts what no event reports.
    await wait(2000);
    const next = await figures(child, lines);
    if (Math.abs(next.counted - last.counted) < last.counted / 50) return next;
    last = next;
  }
  return last;
}

async function figures({ stdin }: ChildProcess, lines: Interface): Promise<Figures> {
  const answer = next(lines);
  stdin?.write('\n');
  return (await answer) as Figures;
}

async function next(lines: Interface): Promise<unknown> {
  const [line] = (await once(lines, 'line')) as [string];
  return JSON.parse(line);
}

process.exit(await main(process.argv.slice(2)));
