import { createServer, type IncomingMessage, type Server, type ServerOptions, type ServerResponse } from 'node:http';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https';
import type { AddressInfo, Server as NetServer, Socket } from 'node:net';
import type { GatewayEndpoint } from '../endpoint.ts';
import { countedResponse } from '../tally.ts';
import { ClientConnections } from './client-connections.ts';
import type { ClientRequest, ClientResponse } from './client-message.ts';
import { internalFailure, malformedRequest } from './edge-errors.ts';
import { answerError } from './error-answer.ts';
import { HTTP_LIMITS, type HttpLimits, sweepInterval } from './http-limits.ts';
import { HttpProxy } from './http-proxy.ts';
import { Http2Clients } from './http2-clients.ts';
import type { InternalLookup } from './internal-targets.ts';
import { PublicTls, type PublicTlsOptions } from './public-tls.ts';
import { hasBody } from './request-guard.ts';
import { Routing, type Scheme } from './routing.ts';
import { responseOn } from './upgrade.ts';

export interface EdgeServerOptions extends PublicTlsOptions {
  /** 0 for any free port. */
  httpPort: number;
  httpsPort: number;
  /** Milliseconds until an upstream must have begun to answer; five minutes when left out. */
  headersTimeout?: number;
}

const MINUTE = 60_000;

/** The gateway's public side: takes HTTP and HTTPS requests to the endpoint that their host names. */
export class EdgeServer {
  readonly #options: EdgeServerOptions;
  readonly #limits: HttpLimits;
  readonly #Response: typeof ServerResponse;
  readonly #proxy: HttpProxy;
  readonly #routing: Routing;
  readonly #http: Server;
  readonly #https: TlsServer;
  readonly #tls: PublicTls;
  readonly #connections = new Set<Socket>();
  readonly #onRemoved = (endpoint: GatewayEndpoint) => {
    this.#proxy.remove(endpoint);
    this.#tls.remove(endpoint);
  };

  constructor(options: EdgeServerOptions) {
    this.#options = options;
    this.#limits = { ...HTTP_LIMITS, ...options.httpLimits };
    const { tally } = options;
    this.#Response = countedResponse(tally);
    const internal: InternalLookup = (...address) => options.endpoints.internal(...address);
    const clients = new ClientConnections(internal);
    this.#proxy = new HttpProxy({
      internal,
      limits: {
        headersTimeout: options.headersTimeout ?? 5 * MINUTE,
        keepAlive: 10_000,
        maxHeaderSize: this.#limits.headerBytes,
        streamWait: 5000,
      },
      connections: clients,
      tally,
      onFailure: (req, res, error) => this.#fail(req, res, error),
    });
    this.#routing = new Routing({ ...options, clients, proxy: this.#proxy });
    const serverOptions = { ...limitOptions(this.#limits), ServerResponse: this.#Response };
    this.#http = createServer(serverOptions);
    this.#https = createTlsServer(serverOptions);
    const http2 = this.#openHttp2();
    this.#tls = new PublicTls(options, {
      enter: (...arrival) => clients.enter(...arrival),
      serve: (secured, entrance) => {
        tally.connected(secured, 'https');
        clients.opened(secured, entrance);
        if (secured.alpnProtocol === 'h2') http2.accept(secured);
        else this.#https.emit('secureConnection', secured);
      },
    });
    // Before there are listeners of others.
    this.#https.removeAllListeners('connection').on('connection', (socket: Socket) => this.#tls.accept(socket));
    this.#http.maxConnections = this.#limits.connections;
    this.#http.on('connection', (socket) => {
      tally.connected(socket, 'http');
      clients.opened(socket);
    });
    this.#prepare(this.#http, 'http');
    this.#prepare(this.#https, 'https');
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
    const closed = Promise.all([close(this.#http), close(this.#https)]);
    for (const socket of this.#connections) socket.destroy();
    await closed;
  }

  #openHttp2(): Http2Clients {
    return new Http2Clients({
      limits: this.#limits,
      onRequest: (req, res) => this.#serve(req, res, 'https', (endpoint) => this.#proxy.handle(req, res, endpoint)),
      tally: this.#options.tally,
      log: this.#options.log,
    });
  }

  #prepare(server: Server | TlsServer, scheme: Scheme): void {
    server.timeout = this.#limits.idleTimeout;
    server.on('connection', (socket: Socket) => {
      this.#connections.add(socket);
      socket.once('close', () => this.#connections.delete(socket));
    });
    const onRequest = (req: IncomingMessage, res: ServerResponse) => {
      this.#serve(req, res, scheme, (endpoint) => this.#proxy.handle(req, res, endpoint));
    };
    server.on('request', onRequest);
    server.on('checkContinue', onRequest);
    server.on('upgrade', (req: IncomingMessage, socket: Socket, early: Buffer) => {
      // Node no longer looks after the socket: an error ends in 'close', which all here wait for.
      socket.on('error', () => {});
      socket.setTimeout(this.#limits.idleTimeout, () => socket.destroy());
      const res = responseOn(new this.#Response(req), socket);
      // Node has not read the body and cannot any more.
      if (hasBody(req)) return answerError(req, res, malformedRequest('an upgrade cannot have a body'));
      this.#serve(req, res, scheme, (endpoint) => this.#proxy.handleUpgrade(req, { res, early }, endpoint));
    });
  }

  /** A failure of ours costs one request, never the process. */
  #serve(req: ClientRequest, res: ClientResponse, scheme: Scheme, proxy: (endpoint: GatewayEndpoint) => void): void {
    try {
      const endpoint = this.#routing.route(req, res, scheme);
      if (endpoint) proxy(endpoint);
    } catch (error) {
      this.#fail(req, res, error);
    }
  }

  #fail(req: ClientRequest, res: ClientResponse, error: unknown): void {
    this.#options.log.error({ err: error }, 'a request failed unexpectedly');
    answerError(req, res, internalFailure());
  }
}

function limitOptions(limits: HttpLimits): ServerOptions {
  return {
    maxHeaderSize: limits.headerBytes,
    headersTimeout: limits.headersTimeout,
    requestTimeout: 0,
    connectionsCheckingInterval: sweepInterval(limits),
    keepAliveTimeout: limits.keepAliveTimeout,
    insecureHTTPParser: false,
    // Checked with the rest when requests are routed.
    requireHostHeader: false,
    noDelay: true,
  };
}

function listen(server: NetServer, host: string, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve((server.address() as AddressInfo).port);
    });
  });
}

function close(server: NetServer): Promise<void> {
  return new Promise((resolve) => {
    // The error would say that it was not listening.
    server.close(() => resolve());
  });
}
