import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerOptions,
  type ServerResponse,
} from 'node:http';
import type { Socket } from 'node:net';
import { ApiError } from '../../lib/errors.ts';
import { answerProtocolErrors, inTurn } from '../../lib/http/http-server.ts';
import type { Log } from '../../lib/log/log.ts';
import { internalFailure, malformedRequest, misdirected } from './http/edge-errors.ts';
import { answerError } from './http/error-response.ts';
import { hostNameOf } from './http/headers.ts';
import { type HttpLimits, sweepInterval } from './http/http-limits.ts';

/** A year, and for the host alone: endpoints below the same domain may need plain HTTP. */
const HSTS = 'max-age=31536000';

export type MessageClasses = Pick<ServerOptions, 'IncomingMessage' | 'ServerResponse'>;

/** The gateway's own services over HTTPS, such as the management API. Nothing is proxied, so Node's parser serves them. */
export class ServiceServer {
  readonly #server: Server;
  /** Responses that have not ended. */
  readonly #running = new Set<ServerResponse>();

  constructor(
    readonly names: ReadonlyMap<string, RequestListener>,
    limits: HttpLimits,
    messages: MessageClasses = {},
  ) {
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
    this.#server.on(
      'request',
      inTurn((req, res) => this.#serve(req, res)),
    );
  }

  #serve(req: IncomingMessage, res: ServerResponse): void {
    this.#running.add(res);
    res.once('close', () => this.#running.delete(res));
    // Over plain HTTP, neighbours below the same domain could set cookies for it, and networks could answer in its place.
    res.setHeader('Strict-Transport-Security', HSTS);
    const host = hostNameOf(req.headers.host ?? '');
    const service = this.names.get(host);
    if (service) service(req, res);
    else if (host === '') answerError(req, res, malformedRequest('exactly one Host header is required'));
    else answerError(req, res, misdirected(host));
  }

  accept(socket: Socket): void {
    this.#server.emit('connection', socket);
    socket.resume();
  }

  /** Closes connections between two requests. */
  closeIdle(): void {
    this.#server.closeIdleConnections();
  }

  /** Ends event streams, such as a dashboard's, which would go on: their clients connect again. */
  endStreams(): void {
    for (const res of this.#running)
      if (String(res.getHeader('content-type')).startsWith('text/event-stream')) res.destroy();
  }

  /** Stops enforcing timeouts. */
  close(): void {
    this.#server.close();
  }
}

/** A request listener whose code is loaded on its first request: most gateways inside an agent never get one. */
export function lazyListener(load: () => Promise<RequestListener>, log: Log): RequestListener {
  let loading: Promise<RequestListener> | null = null;
  return (req, res) => {
    loading ??= load();
    loading.then(
      (listener) => listener(req, res),
      (error: unknown) => {
        loading = null;
        log.error({ err: error }, 'service not loaded');
        answerError(req, res, internalFailure());
      },
    );
  };
}
