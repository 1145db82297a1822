import { createServer, type RequestListener, type Server, type ServerOptions } from 'node:http';
import type { Socket } from 'node:net';
import { ApiError } from '../../lib/errors.ts';
import { answerProtocolErrors } from '../../lib/http/protocol-errors.ts';
import { replaceInvalidTarget } from '../../lib/http/request-target.ts';
import { malformedRequest, misdirected } from './http/edge-errors.ts';
import { answerError } from './http/error-response.ts';
import { hostNameOf } from './http/host-name.ts';
import { type HttpLimits, sweepInterval } from './http/http-limits.ts';

export type MessageClasses = Pick<ServerOptions, 'IncomingMessage' | 'ServerResponse'>;

/** The gateway's own services over HTTPS, such as the management API. Nothing is proxied, so Node's parser serves them. */
export class ServiceServer {
  readonly #server: Server;
  readonly #services: ReadonlyMap<string, RequestListener>;

  /** @param services by lower-case hostname */
  constructor(services: ReadonlyMap<string, RequestListener>, limits: HttpLimits, messages: MessageClasses = {}) {
    this.#services = services;
    this.#server = createServer({
      maxHeaderSize: limits.headerBytes,
      headersTimeout: limits.headersTimeout,
      // Node's default may be shorter than the headers timeout that an operator sets.
      requestTimeout: 0,
      connectionsCheckingInterval: sweepInterval(limits),
      keepAliveTimeout: limits.keepAliveTimeout,
      insecureHTTPParser: false,
      // Node would answer without a body.
      requireHostHeader: false,
      ...messages,
    });
    this.#server.timeout = limits.idleTimeout;
    answerProtocolErrors(this.#server, (status, message) => new ApiError(status, 'ERR_NGROK_3004', message));
    // Node enforces its timeouts only once the server is listening.
    this.#server.emit('listening');
    this.#server.on('request', (req, res) => {
      const host = hostNameOf(req.headers.host ?? '');
      const service = services.get(host);
      replaceInvalidTarget(req);
      if (service) service(req, res);
      else if (host === '') answerError(req, res, malformedRequest('exactly one Host header is required'));
      else answerError(req, res, misdirected(host));
    });
  }

  /** @param host value of a Host header */
  serves(host = ''): boolean {
    return this.#services.has(hostNameOf(host));
  }

  /** Takes over a connection whose next request is still unread. */
  accept(socket: Socket): void {
    this.#server.emit('connection', socket);
    socket.resume();
  }

  /** Closes connections between two requests. */
  closeIdle(): void {
    this.#server.closeIdleConnections();
  }

  /** Stops enforcing timeouts. */
  close(): void {
    this.#server.close();
  }
}
