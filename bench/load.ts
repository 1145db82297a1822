/**
 * The load generator: keep-alive connections over raw sockets, one request at a time on each.
 * Arguments: JSON, see {@link Load}. Prints {requests, bytes, seconds, p50, p99}.
 */
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';

interface Load {
  /** Default: loopback. */
  host?: string;
  port: number;
  /** Sent as Host and SNI. */
  name: string;
  tls: boolean;
  path: string;
  connections: number;
  /** Bytes of each request's body; requests with one are POSTs. */
  upload?: number;
  /** Duration, unless `requests` sets a number of requests. */
  seconds?: number;
  requests?: number;
  /** Seconds after which connections are cut, whatever they have under way. */
  within?: number;
  /** Connections may break: what was under way took as long as that, and a new one follows. */
  tolerant?: boolean;
  /** Prints a line right away: for a load that is stopped rather than awaited. */
  unattended?: boolean;
}

const load = JSON.parse(process.argv[2] ?? '{}') as Load;
const upload = load.upload ?? 0;
const request = upload
  ? `POST ${load.path} HTTP/1.1\r\nHost: ${load.name}\r\nContent-Length: ${upload}\r\n\r\n`
  : `GET ${load.path} HTTP/1.1\r\nHost: ${load.name}\r\n\r\n`;
const piece = Buffer.alloc(256 * 1024, 'x');
const RETRY_MS = 200;
const latencies: number[] = [];
const sockets = new Set<Socket>();
let bytes = 0;
let left = load.requests ?? Number.POSITIVE_INFINITY;
let open = load.connections;
const started = performance.now();
const end = load.seconds === undefined ? Number.POSITIVE_INFINITY : started + load.seconds * 1000;

if (load.unattended) console.log('{}');
if (load.within !== undefined) setTimeout(cut, load.within * 1000).unref();
for (let i = 0; i < load.connections; i++) run(dial());

function dial(): Socket {
  const address = { host: load.host ?? '127.0.0.1', port: load.port };
  return load.tls ? connectTls({ ...address, servername: load.name, rejectUnauthorized: false }) : connect(address);
}

function cut(): void {
  left = 0;
  for (const socket of sockets) socket.destroy();
}

function run(socket: Socket): void {
  sockets.add(socket);
  let head = '';
  let bodyLeft = -1;
  let sent = 0;
  const next = () => {
    if (performance.now() >= end || left <= 0) return socket.end();
    left -= 1;
    sent = performance.now();
    head = '';
    bodyLeft = -1;
    socket.write(request);
    send(upload);
  };
  const send = (left: number): void => {
    for (let rest = left; rest > 0; ) {
      const part = rest < piece.length ? piece.subarray(0, rest) : piece;
      rest -= part.length;
      bytes += part.length;
      if (!socket.write(part)) {
        socket.once('drain', () => send(rest));
        return;
      }
    }
  };
  socket.setNoDelay(true);
  socket.once(load.tls ? 'secureConnect' : 'connect', next);
  socket.on('data', (data: Buffer) => {
    bytes += data.length;
    let length = data.length;
    if (bodyLeft < 0) {
      const before = head.length;
      head += data.toString('latin1');
      const at = head.indexOf('\r\n\r\n');
      if (at < 0) return;
      if (!head.startsWith('HTTP/1.1 200')) {
        socket.destroy(new Error(`unexpected response: ${head.slice(0, 200)}`));
        return;
      }
      bodyLeft = Number(/\r\ncontent-length: (\d+)/i.exec(head)?.[1]);
      length = before + data.length - at - 4;
    }
    bodyLeft -= length;
    if (bodyLeft > 0) return;
    latencies.push(performance.now() - sent);
    next();
  });
  socket.on('error', (error) => {
    if (!load.tolerant) throw error;
    latencies.push(performance.now() - sent);
    left += 1;
  });
  socket.on('close', (isBroken) => {
    sockets.delete(socket);
    if (isBroken && left > 0 && performance.now() < end) return void setTimeout(() => run(dial()), RETRY_MS);
    open -= 1;
    if (open === 0) finish();
  });
}

function finish(): void {
  const seconds = (performance.now() - started) / 1000;
  latencies.sort((a, b) => a - b);
  const at = (q: number) => latencies[Math.floor(latencies.length * q)] ?? 0;
  console.log(JSON.stringify({ requests: latencies.length, bytes, seconds, p50: at(0.5), p99: at(0.99) }));
}
