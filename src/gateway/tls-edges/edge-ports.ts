import { createServer, type Server, type Socket } from 'node:net';
import { messageOf } from '../../lib/errors.ts';
import type { Log } from '../../lib/log.ts';
import type { TlsMux, TlsRoute } from '../edge/tls/tls-mux.ts';
import type { TlsEdgeIndex } from './edge-index.ts';

export interface EdgePortsOptions {
  index: TlsEdgeIndex;
  door: TlsMux;
  /** The edges at a port. */
  routeAt(port: number): TlsRoute;
  /** Address to listen on. */
  host: string;
  log: Log;
}

/** More are not opened. */
const MAX_PORTS = 100;
/** A port that somebody else has may become free. */
const RETRY_MS = 30_000;

/** The further ports that hostports of TLS edges name: open as long as an edge serves something there. */
export class EdgePorts {
  readonly #options: EdgePortsOptions;
  readonly #servers = new Map<number, Server>();
  readonly #connections = new Set<Socket>();
  readonly #onChanged = () => this.#adjust();
  #publicPorts: ReadonlySet<number> = new Set();
  #retry: NodeJS.Timeout | undefined;

  constructor(options: EdgePortsOptions) {
    this.#options = options;
  }

  /** @param publicPorts what is served at the public TLS port */
  start(publicPorts: readonly number[]): void {
    this.#publicPorts = new Set(publicPorts);
    this.#options.index.on('changed', this.#onChanged);
    this.#adjust();
  }

  /** Stops listening and cuts every connection. */
  stop(): void {
    this.#options.index.off('changed', this.#onChanged);
    clearTimeout(this.#retry);
    for (const port of [...this.#servers.keys()]) this.#close(port);
    for (const socket of this.#connections) socket.destroy();
  }

  #adjust(): void {
    const wanted = new Set<number>();
    for (const { port } of this.#options.index.served()) if (!this.#publicPorts.has(port)) wanted.add(port);
    for (const port of [...this.#servers.keys()]) if (!wanted.has(port)) this.#close(port);
    for (const port of wanted) if (!this.#servers.has(port)) this.#open(port);
  }

  #open(port: number): void {
    const { door, routeAt, host, log } = this.#options;
    if (this.#servers.size >= MAX_PORTS) {
      log.error({ port }, `TLS edges name more than ${MAX_PORTS} ports; this one stays closed`);
      return;
    }
    const route = routeAt(port);
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      this.#connections.add(socket);
      socket.once('close', () => this.#connections.delete(socket));
      door.accept(socket, route);
    });
    server.on('error', (error) => {
      log.error({ port, reason: messageOf(error) }, 'a port that a TLS edge names cannot be had; trying again');
      if (this.#servers.get(port) === server) this.#close(port);
      this.#tryAgain();
    });
    this.#servers.set(port, server);
    server.listen(port, host);
  }

  /** Connections that are open stay so. */
  #close(port: number): void {
    this.#servers.get(port)?.close();
    this.#servers.delete(port);
  }

  #tryAgain(): void {
    clearTimeout(this.#retry);
    this.#retry = setTimeout(this.#onChanged, RETRY_MS).unref();
  }
}
