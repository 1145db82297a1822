import { once } from 'node:events';
import { createServer as createHttp, type IncomingMessage, type Server } from 'node:http';
import { createServer as createHttps } from 'node:https';
import { type AddressInfo, connect, createServer, type Server as NetServer, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { onTestFinished } from 'vitest';

export interface ProxyOptions {
  /** Real addresses of destinations, by their requested `host:port`; others are used as requested. */
  hosts?: Readonly<Record<string, string>>;
  /** The required `user:password`. */
  credentials?: string;
  /** A refusal instead of connecting: an HTTP status or a SOCKS reply. */
  refusal?: number;
  /** For a proxy that uses TLS itself. */
  tls?: { cert: string; key: string };
}

/** A proxy on loopback that records requests; closed after the test. */
export class TestProxy {
  /** `host:port` of every requested connection. */
  readonly asked: string[] = [];
  /** Bytes that clients have received. */
  received = 0;
  readonly #sockets = new Set<Duplex>();
  readonly #hosts: Record<string, string>;

  private constructor(
    private readonly server: NetServer,
    private readonly options: ProxyOptions,
  ) {
    this.#hosts = { ...options.hosts };
  }

  /** An HTTP proxy with CONNECT. */
  static async http(options: ProxyOptions = {}): Promise<TestProxy> {
    const server: Server = options.tls ? createHttps(options.tls) : createHttp();
    const proxy = new TestProxy(server, options);
    server.on('connect', (request: IncomingMessage, socket: Duplex) => proxy.#connect(request, socket));
    return proxy.#start();
  }

  /** A SOCKS 5 proxy. */
  static async socks(options: ProxyOptions = {}): Promise<TestProxy> {
    const server = createServer((socket) => void proxy.#socks(socket).catch(() => socket.destroy()));
    const proxy = new TestProxy(server, options);
    return proxy.#start();
  }

  /** `127.0.0.1:port` */
  get address(): string {
    return `127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  /** Moves a destination, given as `host:port`. */
  lead(destination: string, there: string): void {
    this.#hosts[destination] = there;
  }

  /** The number of open connections. */
  get open(): number {
    return this.#sockets.size;
  }

  /** Resets every connection. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async #start(): Promise<TestProxy> {
    this.server.listen(0, '127.0.0.1');
    await once(this.server, 'listening');
    onTestFinished(() => {
      this.server.close();
      this.cut();
    });
    return this;
  }

  #connect({ url = '', headers }: IncomingMessage, socket: Duplex): void {
    const { credentials, refusal } = this.options;
    const wanted = credentials && `Basic ${Buffer.from(credentials).toString('base64')}`;
    const status = headers['proxy-authorization'] === wanted ? refusal : 407;
    if (status !== undefined) return void socket.end(`HTTP/1.1 ${status} No\r\n\r\n`);
    this.#join(url, socket, () => socket.write('HTTP/1.1 200 Connection established\r\n\r\n'));
  }

  async #socks(socket: Socket): Promise<void> {
    const { credentials, refusal = 0 } = this.options;
    const take = reader(socket);
    const [, count = 0] = await take(2);
    const method = credentials ? 2 : 0;
    const offered = await take(count);
    if (!offered.includes(method)) return void socket.end(Buffer.from([5, 0xff]));
    socket.write(Buffer.from([5, method]));
    if (credentials) {
      await take(1);
      const user = await take((await take(1))[0] ?? 0);
      const password = await take((await take(1))[0] ?? 0);
      const isRight = `${user}:${password}` === credentials;
      socket.write(Buffer.from([1, isRight ? 0 : 1]));
      if (!isRight) return void socket.end();
    }
    const [, , , type] = await take(4);
    const host = type === 3 ? (await take((await take(1))[0] ?? 0)).toString() : await address(take, type);
    const port = (await take(2)).readUInt16BE();
    // A reply with a name is the longest one.
    const answer = Buffer.concat([Buffer.from([5, refusal, 0, 3, 4]), Buffer.from('here'), Buffer.from([0, 1])]);
    if (refusal !== 0) return void socket.end(answer);
    this.#join(`${host.includes(':') ? `[${host}]` : host}:${port}`, socket, () => socket.write(answer));
  }

  #join(destination: string, socket: Duplex, connected: () => void): void {
    this.asked.push(destination);
    const [, host = '', port] = /^\[?(.*?)\]?:(\d+)$/.exec(this.#hosts[destination] ?? destination) ?? [];
    const upstream = connect({ host, port: Number(port) }, () => {
      connected();
      socket.pipe(upstream).pipe(socket);
      upstream.on('data', ({ length }: Buffer) => {
        this.received += length;
      });
    });
    for (const [one, other] of [
      [socket, upstream],
      [upstream, socket],
    ] as const) {
      this.#sockets.add(one);
      one.on('error', () => one.destroy());
      one.once('close', () => {
        this.#sockets.delete(one);
        other.destroy();
      });
    }
  }
}

type Take = (length: number) => Promise<Buffer>;

function reader(socket: Socket): Take {
  return async (length) => {
    if (length === 0) return Buffer.alloc(0);
    for (;;) {
      const bytes: Buffer | null = socket.read(length);
      if (bytes) return bytes;
      await once(socket, 'readable');
    }
  };
}

async function address(take: Take, type: number | undefined): Promise<string> {
  if (type === 1) return (await take(4)).join('.');
  const groups = (await take(16)).toString('hex').match(/.{4}/g) ?? [];
  return new URL(`http://[${groups.join(':')}]`).hostname.slice(1, -1);
}
