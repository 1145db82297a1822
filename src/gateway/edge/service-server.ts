import { createServer, type RequestListener, type Server } from 'node:http';
import type { Socket } from 'node:net';
import { misdirected } from './http/edge-errors.ts';
import { answerError } from './http/error-response.ts';
import { hostNameOf } from './http/host-name.ts';
import { type HttpLimits, sweepInterval } from './http/http-limits.ts';

/** Serves what the gateway itself answers over HTTPS: the management API. Nothing of it is passed on, so Node reads it. */
export class ServiceServer {
  readonly #server: Server;
  readonly #services: ReadonlyMap<string, RequestListener>;

  /** @param services what answers, by lower-case hostname */
  constructor(services: ReadonlyMap<string, RequestListener>, limits: HttpLimits) {
    this.#services = services;
    this.#server = createServer({
      maxHeaderSize: limits.headerBytes,
      headersTimeout: limits.headersTimeout,
      // Node's own would be less than what may be set for the headers alone.
      requestTimeout: 0,
      connectionsCheckingInterval: sweepInterval(limits),
      keepAliveTimeout: limits.keepAliveTimeout,
      insecureHTTPParser: false,
    });
    this.#server.timeout = limits.idleTimeout;
    // Only of a server that listens, as it takes it, Node ends connections that are too slow.
    this.#server.emit('listening');
    this.#server.on('request', (req, res) => {
      const host = hostNameOf(req.headers.host ?? '');
      const service = services.get(host);
      if (service) service(req, res);
      else answerError(req, res, misdirected(host));
    });
  }

  /** @param host value of a Host header */
  serves(host = ''): boolean {
    return this.#services.has(hostNameOf(host));
  }

  /** Takes over a connection, beginning with a request that is yet to be read from it. */
  accept(socket: Socket): void {
    this.#server.emit('connection', socket);
    socket.resume();
  }

  /** Closes the connections that wait for another request. */
  closeIdle(): void {
    this.#server.closeIdleConnections();
  }

  /** Looks after its connections no longer. */
  close(): void {
    this.#server.close();
  }
}
