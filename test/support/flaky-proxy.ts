import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { freePorts } from './free-ports.ts';

/** Sees a piece pass. Returns how many of its bytes do before the connection breaks; null: all, and it goes on. */
export type Watch = (from: 'client' | 'upstream', piece: Buffer) => number | null;

/** A TCP proxy in front of a gateway that fails like networks do. Its port never changes. */
export class FlakyProxy {
  #server: Server | null = null;
  #port = 0;
  #silent = false;
  #holding = false;
  #delayMs = 0;
  #uploadDelayMs = 0;
  /** Bytes per second from the gateway, for all connections together; infinite: as fast as they come. */
  #rate = Number.POSITIVE_INFINITY;
  /** When a throttled link has passed on what it has, in milliseconds of `performance.now()`. */
  #freeAt = 0;
  readonly #pairs = new Set<[client: Socket, upstream: Socket]>();
  /** Connections accepted during a silence, which get no response. */
  readonly #unanswered = new Set<Socket>();
  /** Connections accepted so far. */
  accepted = 0;
  /** Bytes from the gateway that have passed so far. */
  received = 0;
  /** Begins to watch a new connection; null: none is. */
  watch: (() => Watch) | null = null;

  /** @param target `host:port`; a function when the target moves */
  private constructor(
    private target: () => string,
    private readonly host: string,
  ) {}

  /** Starts a proxy, by default on a free port of the loopback. */
  static async start(target: string | (() => string), host = '127.0.0.1', port?: number): Promise<FlakyProxy> {
    const proxy = new FlakyProxy(typeof target === 'string' ? () => target : target, host);
    // Outside the ephemeral range, so that no outgoing connection takes it.
    proxy.#port = port ?? (await freePorts(1)).first;
    await proxy.listen();
    return proxy;
  }

  /** `host:port` */
  get address(): string {
    return `${this.host}:${this.#port}`;
  }

  /** The number of open connections. */
  get open(): number {
    return this.#pairs.size;
  }

  /** Accepts connections, also after refuse(). */
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

  /** Forwards nothing in either direction and closes nothing, like a half-open link. */
  silence(): void {
    this.#silent = true;
    for (const pair of this.#pairs) for (const socket of pair) socket.pause();
  }

  /** Ends the silence for new connections; the silent ones stay silent. */
  speak(): void {
    this.#silent = false;
  }

  /** Delays everything in both directions until release(), like lost and resent packets. */
  hold(): void {
    this.silence();
    this.#holding = true;
  }

  /** Ends hold(): delayed bytes arrive on the same connections. */
  release(): void {
    this.#silent = false;
    this.#holding = false;
    for (const pair of this.#pairs) for (const socket of pair) socket.resume();
    for (const client of this.#unanswered) this.#join(client);
    this.#unanswered.clear();
  }

  /** Sends new connections to another target, and cuts the open ones. */
  divert(target: () => string): void {
    this.target = target;
    this.cut();
  }

  /** Delays bytes from the gateway by so many milliseconds. @param uploadMs the same for those to the gateway */
  delay(ms: number, uploadMs = 0): void {
    this.#delayMs = ms;
    this.#uploadDelayMs = uploadMs;
  }

  /** Passes on so many bytes a second from the gateway, for all connections together. */
  throttle(bytesPerSecond: number): void {
    this.#rate = bytesPerSecond;
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
    // Keep reading: this shows when the other side gives up.
    if (this.#holding) client.pause();
    else client.resume();
  }

  #join(client: Socket): void {
    const target = new URL(`tcp://${this.target()}`);
    const upstream = connect(Number(target.port), target.hostname);
    const pair: [Socket, Socket] = [client, upstream];
    this.#pairs.add(pair);
    const end = () => {
      if (this.#silent) return; // a silent connection forwards no close either
      this.#pairs.delete(pair);
      client.destroy();
      upstream.destroy();
    };
    for (const socket of pair) {
      socket.setNoDelay(true);
      socket.on('error', end);
      socket.on('close', end);
    }
    const watch = this.watch?.();
    const isBroken = (from: 'client' | 'upstream', chunk: Buffer) => {
      const passes = watch?.(from, chunk) ?? null;
      if (passes === null) return false;
      const [sender, receiver] = from === 'client' ? [client, upstream] : [upstream, client];
      sender.pause();
      receiver.end(chunk.subarray(0, passes), () => sender.resetAndDestroy());
      return true;
    };
    client.on('data', (chunk) => {
      if (isBroken('client', chunk)) return;
      if (this.#uploadDelayMs === 0) upstream.write(chunk);
      else setTimeout(() => upstream.write(chunk), this.#uploadDelayMs);
    });
    upstream.on('data', (chunk) => {
      if (isBroken('upstream', chunk)) return;
      this.received += chunk.length;
      if (this.#rate !== Number.POSITIVE_INFINITY) this.#passSlowly(chunk, upstream, client);
      else if (this.#delayMs === 0) client.write(chunk);
      else setTimeout(() => client.write(chunk), this.#delayMs);
    });
    client.resume();
  }

  #passSlowly(chunk: Buffer, upstream: Socket, client: Socket): void {
    const now = performance.now();
    this.#freeAt = Math.max(now, this.#freeAt) + (chunk.length / this.#rate) * 1000;
    upstream.pause();
    setTimeout(() => {
      client.write(chunk);
      if (!this.#silent) upstream.resume();
    }, this.#freeAt - now);
  }
}
