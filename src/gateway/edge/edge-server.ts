import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import type { GatewayEndpoint } from '../endpoints/endpoint.ts';
import type { InternalLookup } from '../endpoints/endpoint-directory.ts';
import { ClientConnections } from './clients/client-connections.ts';
import { Http1Clients } from './clients/http1/http1-clients.ts';
import { Http2Clients } from './clients/http2/http2-clients.ts';
import { closeLongestIdle } from './clients/idle-clients.ts';
import type { ClientRequest, ClientResponse } from './http/client-message.ts';
import { internalFailure } from './http/edge-errors.ts';
import { answerError } from './http/error-response.ts';
import { HTTP_LIMITS, type HttpLimits } from './http/http-limits.ts';
import { resetConnection } from './http/reset-connection.ts';
import { HttpProxy } from './proxy/http-proxy.ts';
import { PublicTls, type PublicTlsOptions } from './public-tls.ts';
import { Routing, type Scheme } from './routing.ts';
import { ServiceServer } from './service-server.ts';

export interface EdgeServerOptions extends PublicTlsOptions {
  /** 0 for any free port. */
  httpPort: number;
  httpsPort: number;
  /** Milliseconds until an upstream must have begun to answer; five minutes when left out. */
  responseTimeout?: number;
}

const MINUTE = 60_000;

/** The gateway's public side: takes HTTP and HTTPS requests to the endpoint that their host names. */
export class EdgeServer {
  readonly #options: EdgeServerOptions;
  readonly #proxy: HttpProxy;
  readonly #routing: Routing;
  readonly #http: Server;
  readonly #https: Server;
  readonly #tls: PublicTls;
  readonly #http2: Http2Clients;
  readonly #services: ServiceServer;
  readonly #connections = new Set<Socket>();
  readonly #onRemoved = (endpoint: GatewayEndpoint) => {
    this.#proxy.remove(endpoint);
    this.#tls.remove(endpoint);
  };

  constructor(options: EdgeServerOptions) {
    const { counters, log, services = new Map() } = options;
    const limits: HttpLimits = { ...HTTP_LIMITS, ...options.httpLimits };
    this.#options = options;
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
      connections: clients,
      counters,
      onFailure: (req, res, error) => this.#fail(req, res, error),
    });
    this.#routing = new Routing({ ...options, clients, proxy: this.#proxy });
    const plain = new Http1Clients({ limits, counters, log });
    const secure = new Http1Clients({ limits, counters, log });
    const http = { onRequest: (req: ClientRequest, res: ClientResponse) => this.#serve(req, res, 'http') };
    const onHttps = (req: ClientRequest, res: ClientResponse) => this.#serve(req, res, 'https');
    this.#services = new ServiceServer(services, limits);
    const https = { onRequest: onHttps, services: this.#services };
    this.#http2 = new Http2Clients({ limits, onRequest: onHttps, counters, log });
    this.#tls = new PublicTls(options, {
      enter: (...arrival) => clients.enter(...arrival),
      serve: (secured, entrance) => {
        counters.connected(secured, 'https');
        clients.opened(secured, entrance);
        if (secured.alpnProtocol === 'h2') this.#http2.accept(secured);
        else secure.accept(secured, https);
      },
      makeRoom: () => {
        if (closeLongestIdle(secure, this.#http2)) return true;
        // Node does not say whether there were any: who comes next may find their places.
        this.#services.closeIdle();
        return false;
      },
    });
    // Upgraded connections may end in one direction before the other, but not those over TLS.
    this.#https = this.#listener(false, (socket) => this.#tls.accept(socket));
    let visitors = 0;
    this.#http = this.#listener(true, (socket) => {
      if (visitors >= limits.connections && !closeLongestIdle(plain)) {
        resetConnection(socket);
        return;
      }
      visitors += 1;
      socket.once('close', () => {
        visitors -= 1;
      });
      counters.connected(socket, 'http');
      clients.opened(socket);
      plain.accept(socket, http);
    });
  }

  /**
   * @returns the ports that were chosen
   * @throws the system's error when a port cannot be had
   */
  async start(): Promise<{ httpPort: number; httpsPort: number }> {
    const { endpoints, host, httpPort, httpsPort } = this.#options;
    endpoints.on('removed', this.#onRemoved);
    try {
      // Found out here and not with the first client.
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

  /** Stops listening and cuts every connection. */
  async stop(): Promise<void> {
    this.#options.endpoints.off('removed', this.#onRemoved);
    this.#proxy.close();
    this.#tls.stop();
    this.#services.close();
    const closed = Promise.all([close(this.#http), close(this.#https)]);
    for (const socket of this.#connections) socket.destroy();
    await closed;
  }

  #listener(allowHalfOpen: boolean, accept: (socket: Socket) => void): Server {
    return createServer({ allowHalfOpen, noDelay: true }, (socket) => {
      this.#connections.add(socket);
      socket.once('close', () => this.#connections.delete(socket));
      accept(socket);
    });
  }

  /** A failure of ours costs one request, never the process. */
  #serve(req: ClientRequest, res: ClientResponse, scheme: Scheme): void {
    try {
      const endpoint = this.#routing.route(req, res, scheme);
      if (endpoint) this.#proxy.handle(req, res, endpoint);
    } catch (error) {
      this.#fail(req, res, error);
    }
  }

  #fail(req: ClientRequest, res: ClientResponse, error: unknown): void {
    this.#options.log.error({ err: error }, 'a request failed unexpectedly');
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
    // The error would say that it was not listening.
    server.close(() => resolve());
  });
}
