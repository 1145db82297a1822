import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import type { MemoryBudget } from '../../lib/memory-budget.ts';
import { noteArrival } from '../../lib/time/loop-turn.ts';
import type { GatewayEndpoint } from '../endpoints/endpoint.ts';
import type { InternalLookup } from '../endpoints/endpoint-directory.ts';
import { ClientConnections } from './clients/client-connections.ts';
import { clientMemory } from './clients/client-memory.ts';
import { Http1Clients } from './clients/http1/http1-clients.ts';
import { Http2Clients } from './clients/http2/http2-clients.ts';
import { closeLongestIdle } from './clients/idle-clients.ts';
import type { ClientRequest, ClientResponse } from './http/client-message.ts';
import { internalFailure } from './http/edge-errors.ts';
import { answerError } from './http/error-response.ts';
import { HTTP_LIMITS, type HttpLimits } from './http/http-limits.ts';
import { HttpProxy } from './proxy/http-proxy.ts';
import { PublicTls, type PublicTlsOptions, type PublicTlsParts } from './public-tls.ts';
import { Routing, type Scheme } from './routing.ts';
import { type MessageClasses, ServiceServer } from './service-server.ts';
import { ConnectionSlots } from './tls/connection-slots.ts';

export interface EdgeServerOptions extends PublicTlsOptions {
  serviceMessages?: MessageClasses;
  /** 0 chooses any free port. */
  httpPort: number;
  httpsPort: number;
  /** Milliseconds in which an upstream must begin to answer; left out: five minutes. */
  responseTimeout?: number;
}

const MINUTE = 60_000;

/** The gateway's public side: routes HTTP and HTTPS requests to the endpoint of their host. */
export class EdgeServer {
  readonly #proxy: HttpProxy;
  readonly #routing: Routing;
  readonly #http: Server;
  readonly #https: Server;
  readonly #tls: PublicTls;
  readonly #services: ServiceServer;
  readonly #connections = new Set<Socket>();
  readonly #onRetired = (endpoint: GatewayEndpoint) => this.#proxy.retire(endpoint);
  readonly #onRemoved = (endpoint: GatewayEndpoint) => {
    this.#proxy.remove(endpoint);
    this.#tls.remove(endpoint);
  };

  constructor(private readonly options: EdgeServerOptions) {
    const { counters, log, services = new Map() } = options;
    const limits: HttpLimits = { ...HTTP_LIMITS, ...options.httpLimits };
    const internal: InternalLookup = (...address) => options.endpoints.internal(...address);
    const clients = new ClientConnections(internal);
    this.#proxy = new HttpProxy({
      internal,
      limits: {
        responseTimeout: options.responseTimeout ?? 5 * MINUTE,
        keepAlive: 10_000,
        maxHeaderSize: limits.headerBytes,
        streamWait: 5000,
      },
      counters,
      onFailure: (req, res, error) => this.#fail(req, res, error),
    });
    this.#routing = new Routing({ ...options, clients, proxy: this.#proxy });
    this.#services = new ServiceServer(services, limits, options.serviceMessages);
    const memory = clientMemory(limits.memory);
    this.#tls = new PublicTls(options, this.#tlsParts(limits, memory, clients, internal));
    const plain = new Http1Clients({ limits, memory, counters, log });
    const slots = new ConnectionSlots({
      limit: limits.connections,
      closeIdle: (choice) => closeLongestIdle(choice, plain),
      progressTimeout: limits.progressTimeout,
    });
    const http = { onRequest: (req: ClientRequest, res: ClientResponse) => this.#serve(req, res, 'http') };
    // One direction of an upgraded connection may end before the other, but not over TLS.
    this.#https = this.#listener(false, (socket) => this.#tls.accept(socket));
    this.#http = this.#listener(true, (socket) => {
      if (!slots.take(socket)) return;
      slots.expectProgress(socket);
      counters.connected(socket, 'http');
      clients.opened(socket);
      plain.accept(socket, http);
    });
  }

  /** Listens on both ports and returns them; throws the system's error when one is unavailable. */
  async start(): Promise<{ httpPort: number; httpsPort: number }> {
    const { endpoints, host, httpPort, httpsPort } = this.options;
    endpoints.on('retired', this.#onRetired);
    endpoints.on('removed', this.#onRemoved);
    try {
      await this.#tls.prepare();
      const chosen = {
        httpPort: await listen(this.#http, host, httpPort),
        httpsPort: await listen(this.#https, host, httpsPort),
      };
      this.#tls.start(chosen.httpsPort);
      return chosen;
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  async stop(): Promise<void> {
    this.options.endpoints.off('retired', this.#onRetired);
    this.options.endpoints.off('removed', this.#onRemoved);
    this.#proxy.close();
    this.#tls.stop();
    this.#services.close();
    const closed = Promise.all([close(this.#http), close(this.#https)]);
    for (const socket of this.#connections) socket.destroy();
    await closed;
  }

  #listener(allowHalfOpen: boolean, accept: (socket: Socket) => void): Server {
    return createServer({ allowHalfOpen, noDelay: true }, (socket) => {
      noteArrival();
      this.#connections.add(socket);
      socket.once('close', () => this.#connections.delete(socket));
      accept(socket);
    });
  }

  #tlsParts(
    limits: HttpLimits,
    memory: MemoryBudget,
    clients: ClientConnections,
    internal: InternalLookup,
  ): PublicTlsParts {
    const { counters, log } = this.options;
    const onRequest = (req: ClientRequest, res: ClientResponse) => this.#serve(req, res, 'https');
    const http1 = new Http1Clients({ limits, memory, counters, log });
    const http2 = new Http2Clients({ limits, memory, onRequest, counters, log });
    const http1Handler = { onRequest, services: this.#services };
    return {
      https: { http1, http1Handler, http2, clients, allowsHttp2: limits.streams > 0 },
      internal,
      closeIdle: (choice) => closeLongestIdle(choice, http1, http2),
      // Node does not report whether it closed any: the next connection may find a free slot.
      onFull: () => this.#services.closeIdle(),
    };
  }

  /** Catches everything: a bug costs one request, never the process. */
  #serve(req: ClientRequest, res: ClientResponse, scheme: Scheme): void {
    try {
      const admission = this.#routing.route(req, res, scheme);
      if (admission) this.#proxy.handle(req, res, admission);
    } catch (error) {
      this.#fail(req, res, error);
    }
  }

  #fail(req: ClientRequest, res: ClientResponse, error: unknown): void {
    this.options.log.error({ err: error }, 'request failed unexpectedly');
    answerError(req, res, internalFailure());
  }
}

function listen(server: Server, host: string, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve((server.address() as AddressInfo).port);
    });
  });
}

function close(server: Server): Promise<void> {
  return new Promise((resolve) => {
    // The error says only that the server was not listening.
    server.close(() => resolve());
  });
}
