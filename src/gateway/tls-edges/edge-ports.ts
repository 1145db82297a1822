import { createServer, type Server, type Socket } from 'node:net';
import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import { noteArrival } from '../../lib/time/loop-turn.ts';
import type { TlsEdgeRoute } from '../edge/tls-mux.ts';
import type { TlsEdgeIndex } from './edge-index.ts';

interface EdgePortsOptions {
  index: TlsEdgeIndex;
  routeAt(port: number): TlsEdgeRoute;
  accept(socket: Socket, route: TlsEdgeRoute): void;
  host: string;
  log: Log;
}

const MAX_PORTS = 100;
/** A port that another program uses may become free. */
const RETRY_MS = 30_000;

/** The further ports that hostports of TLS edges name. Each is open as long as an edge is served there. */
export class EdgePorts {
  readonly #servers = new Map<number, Server>();
  readonly #connections = new Set<Socket>();
  readonly #onChanged = () => this.#update();
  #publicPorts: ReadonlySet<number> = new Set();
  #retry: NodeJS.Timeout | undefined;

  constructor(private readonly options: EdgePortsOptions) {}

  /** @param publicPorts numbers of the shared port */
  start(publicPorts: readonly number[]): void {
    this.#publicPorts = new Set(publicPorts);
    this.options.index.on('changed', this.#onChanged);
    this.#update();
  }

  /** Stops listening and closes all connections. */
  stop(): void {
    this.options.index.off('changed', this.#onChanged);
    clearTimeout(this.#retry);
    for (const port of [...this.#servers.keys()]) this.#close(port);
    for (const socket of this.#connections) socket.destroy();
  }

  #update(): void {
    const wanted = new Set<number>();
    for (const { port } of this.options.index.served()) if (!this.#publicPorts.has(port)) wanted.add(port);
    for (const port of [...this.#servers.keys()]) if (!wanted.has(port)) this.#close(port);
    for (const port of wanted) if (!this.#servers.has(port)) this.#open(port);
  }

  #open(port: number): void {
    const { accept, routeAt, host, log } = this.options;
    if (this.#servers.size >= MAX_PORTS) {
      log.error({ port, max_ports: MAX_PORTS }, 'TLS edge port not opened: too many ports');
      return;
    }
    const route = routeAt(port);
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      noteArrival();
      this.#connections.add(socket);
      socket.once('close', () => this.#connections.delete(socket));
      accept(socket, route);
    });
    server.on('error', (error) => {
      log.error({ port, reason: messageOf(error), retry_s: RETRY_MS / 1000 }, 'TLS edge port unavailable; retrying');
      if (this.#servers.get(port) === server) this.#close(port);
      this.#scheduleRetry();
    });
    this.#servers.set(port, server);
    server.listen(port, host);
  }

  /** Stops listening; open connections stay open. */
  #close(port: number): void {
    this.#servers.get(port)?.close();
    this.#servers.delete(port);
  }

  #scheduleRetry(): void {
    clearTimeout(this.#retry);
    this.#retry = setTimeout(this.#onChanged, RETRY_MS).unref();
  }
}
