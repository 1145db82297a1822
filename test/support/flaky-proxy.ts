import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { freePorts } from './free-ports.ts';

/** A TCP proxy in front of a gateway that behaves as badly as networks do. Its port stays the same all along. */
export class FlakyProxy {
  #server: Server | null = null;
  #port = 0;
  #silent = false;
  #holding = false;
  #delayMs = 0;
  readonly #pairs = new Set<[client: Socket, upstream: Socket]>();
  /** Accepted during a silence, and answered by nobody. */
  readonly #unanswered = new Set<Socket>();
  /** Connections accepted so far. */
  accepted = 0;

  /** @param target `host:port`, or a function of it where the target moves */
  private constructor(
    private target: () => string,
    private readonly host: string,
  ) {}

  /** Starts a proxy on a free port of the loopback, or wherever it is told. */
  static async start(target: string | (() => string), host = '127.0.0.1', port?: number): Promise<FlakyProxy> {
    const proxy = new FlakyProxy(typeof target === 'string' ? () => target : target, host);
    // One that no connection gets by chance while nobody listens there.
    proxy.#port = port ?? (await freePorts(1)).first;
    await proxy.listen();
    return proxy;
  }

  /** `host:port` */
  get address(): string {
    return `${this.host}:${this.#port}`;
  }

  /** Connections open now. */
  get open(): number {
    return this.#pairs.size;
  }

  /** Accepts connections, again after refuse(). */
  async listen(): Promise<void> {
    const server = createServer((client) => this.#accept(client));
    server.listen(this.#port, this.host);
    await once(server, 'listening');
    this.#server = server;
  }

  /** Refuses new connections and cuts the open ones. */
  async refuse(): Promise<void> {
    const server = this.#server;
    this.#server = null;
    if (!server) return;
    const closed = once(server, 'close');
    server.close();
    this.cut();
    await closed;
  }

  /** Resets every open connection. */
  cut(): void {
    for (const [client, upstream] of this.#pairs) {
      client.resetAndDestroy();
      upstream.destroy();
    }
    this.#pairs.clear();
    for (const client of this.#unanswered) client.resetAndDestroy();
  }

  /** Passes nothing on any more, in either direction, and closes nothing: a half-open link, a black hole. */
  silence(): void {
    this.#silent = true;
    for (const pair of this.#pairs) for (const socket of pair) socket.pause();
  }

  /** Ends the silence for connections made from now on; the silent ones stay as they are. */
  speak(): void {
    this.#silent = false;
  }

  /** Holds everything back, in both directions, until release(): packets that are lost for a while and sent again. */
  hold(): void {
    this.silence();
    this.#holding = true;
  }

  /** Ends hold(): what was sent meanwhile arrives, on the same connections. */
  release(): void {
    this.#silent = false;
    this.#holding = false;
    for (const pair of this.#pairs) for (const socket of pair) socket.resume();
    for (const client of this.#unanswered) this.#join(client);
    this.#unanswered.clear();
  }

  /** Leads new connections elsewhere, and cuts the open ones. */
  divert(target: () => string): void {
    this.target = target;
    this.cut();
  }

  /** Holds back what comes from the gateway for so many milliseconds. */
  delay(ms: number): void {
    this.#delayMs = ms;
  }

  async close(): Promise<void> {
    await this.refuse();
  }

  #accept(client: Socket): void {
    this.accepted += 1;
    if (this.#silent) this.#leaveUnanswered(client);
    else this.#join(client);
  }

  #leaveUnanswered(client: Socket): void {
    this.#unanswered.add(client);
    client.on('error', () => {});
    client.on('close', () => this.#unanswered.delete(client));
    // Otherwise read all the same: it shows when the other side gives up.
    if (this.#holding) client.pause();
    else client.resume();
  }

  #join(client: Socket): void {
    const target = new URL(`tcp://${this.target()}`);
    const upstream = connect(Number(target.port), target.hostname);
    const pair: [Socket, Socket] = [client, upstream];
    this.#pairs.add(pair);
    const end = () => {
      if (this.#silent) return; // not even that is passed on
      this.#pairs.delete(pair);
      client.destroy();
      upstream.destroy();
    };
    for (const socket of pair) {
      socket.setNoDelay(true);
      socket.on('error', end);
      socket.on('close', end);
    }
    client.on('data', (chunk) => void upstream.write(chunk));
    upstream.on('data', (chunk) => {
      if (this.#delayMs === 0) client.write(chunk);
      else setTimeout(() => client.write(chunk), this.#delayMs);
    });
    client.resume();
  }
}
