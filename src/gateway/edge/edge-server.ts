import type { RequestListener } from 'node:http';
import { createServer, type Server, type Socket } from 'node:net';
import { Repeats } from '../../lib/log/repeats.ts';
import { listen } from '../../lib/network/listen.ts';
import { LoadBalancers } from '../../lib/network/load-balancers.ts';
import { noteArrival } from '../../lib/time/loop-turn.ts';
import { TokenBucket } from '../../lib/time/token-bucket.ts';
import type { SessionTickets } from '../../lib/tls/session-tickets.ts';
import type { HttpChallenges, TlsAlpnChallenges } from '../certificates/challenges/challenges.ts';
import type { DomainCertificates } from '../certificates/domain-certificates.ts';
import type { LocalCa } from '../certificates/local-ca/local-ca.ts';
import type { EdgeContext } from '../context/gateway-context.ts';
import { coveringNames } from '../endpoints/domain-names.ts';
import { nameOfPlace } from '../endpoints/endpoint-address.ts';
import type { GatewayEndpoint, RefusesClient } from '../endpoints/online-endpoint.ts';
import type { NamedPort } from '../endpoints/port-names.ts';
import {
  PROBE_HEADER,
  PROBE_METHOD,
  type ProbeOutcome,
  type ProbeTokens,
  probeText,
} from '../endpoints/probe-outcome.ts';
import { clientMemory } from './clients/client-memory.ts';
import { HttpClients, type HttpClientsOptions } from './clients/http-clients.ts';
import { ClientConnections, internalLookup } from './connections/connect-phase.ts';
import { WaitingClients } from './connections/waiting-clients.ts';
import type { ClientRequest, ClientResponse } from './http/client-message.ts';
import { internalFailure } from './http/edge-errors.ts';
import { answerError, resetConnection } from './http/error-response.ts';
import { headerValue, hostNameOf } from './http/headers.ts';
import { HTTP_LIMITS, type HttpLimits } from './http/http-limits.ts';
import { HttpProxy } from './proxy/http-proxy.ts';
import type { NodePlace } from './relays/other-nodes.ts';
import type { Relays } from './relays/relays.ts';
import { Routing, type Scheme } from './routing.ts';
import { type MessageClasses, ServiceServer } from './service-server.ts';
import { StreamProxy } from './streams/stream-proxy.ts';
import type { AgentConnections } from './tls/agent-connections.ts';
import { CertificateSelection } from './tls/certificate-selection.ts';
import { ConnectionSlots, closeLongestIdle } from './tls/connection-slots.ts';
import { Handshakes } from './tls/handshakes.ts';
import { TLS_LIMITS, type TlsEdgeRouter, type TlsLimits, TlsMux, type TlsRouteParts } from './tls-mux.ts';

export interface EdgeServerOptions {
  ca: LocalCa;
  /** Certificates of reserved domains; all others come from the CA. */
  domainCertificates: Pick<DomainCertificates, 'pairFor'>;
  /** The domain or wildcard of this gateway that a name belongs to, online or not. */
  domainOf: (name: string) => string | null;
  /** The port of the gateway's address for which a name of its domain stands; left out: names stand for none. */
  placeOf?: (name: string) => NamedPort | undefined;
  challenges: { http: HttpChallenges; tlsAlpn: TlsAlpnChallenges };
  isRefused: RefusesClient;
  /** The gateway's own services over HTTPS, such as the management API, by lower-case hostname. */
  services: ReadonlyMap<string, RequestListener>;
  serviceMessages: MessageClasses;
  agents: AgentConnections;
  authorityPem: (id: string) => string | null;
  /** Omitted: those of each context, which other gateways and later processes do not know. */
  agentTickets?: SessionTickets;
  tlsEdges: (parts: TlsRouteParts) => TlsEdgeRouter;
  tlsLimits?: Partial<TlsLimits>;
  /** Milliseconds without a byte after which a tcp or tls connection is closed; left out: the default. */
  streamIdleTimeout?: number;
  httpLimits?: Partial<HttpLimits> | undefined;
  /** Milliseconds in which an upstream must begin to answer; left out: five minutes. */
  responseTimeout?: number;
  relays: Relays | null;
  /** Null: the gateway asks for itself never. */
  probeTokens?: Pick<ProbeTokens, 'isValid'> | null;
}

const MINUTE = 60_000;
/** Requests and connections that can wait for agents, at most: a gateway with few connections keeps half of them for others. */
const MAX_WAITING = 4096;
/** Name in the certificate for clients that request an unknown name. */
const DEFAULT_NAME = 'localhost';
/** Hostports name the public TLS port by its usual number, too: connections may be redirected from there. */
const USUAL_PORT = 443;

/** The gateway's public side: two ports, and the further ports of TLS edges. */
export class EdgeServer {
  readonly #proxy: HttpProxy;
  readonly #routing: Routing;
  readonly #waiting: WaitingClients;
  readonly #http: Server;
  readonly #https: Server;
  readonly #certificates: CertificateSelection;
  readonly #streams: StreamProxy;
  readonly #mux: TlsMux;
  readonly #services: ServiceServer;
  readonly #edges: TlsEdgeRouter;
  #tlsPorts: readonly number[] = [USUAL_PORT];
  readonly #clients: HttpClients[] = [];
  readonly #slots: ConnectionSlots[] = [];
  readonly #connections = new Set<Socket>();
  /** Connections to ports of the gateway's address, after their handshakes. */
  readonly #named = new WeakMap<Socket, NamedPort>();
  readonly #malformed = new Repeats();
  /** An agent may have thousands of endpoints. */
  readonly #malformedLines = new TokenBucket({ burst: 20, perMs: 1 / 1000 }, performance.now());
  readonly #onRetired = (endpoint: GatewayEndpoint) => this.#proxy.retire(endpoint);
  readonly #onRemoved = (endpoint: GatewayEndpoint) => {
    this.#proxy.remove(endpoint);
    this.#streams.remove(endpoint);
  };

  constructor(
    private readonly context: EdgeContext,
    private readonly options: EdgeServerOptions,
  ) {
    const { ca, domainCertificates: domains, domainOf, relays } = options;
    const { endpoints, counters, log } = context;
    const { ip = null } = context.options;
    const limits: HttpLimits = { ...HTTP_LIMITS, ...options.httpLimits };
    const internal = internalLookup({ endpoints, relays });
    const connections = new ClientConnections(internal);
    const ownNames = {
      *[Symbol.iterator]() {
        yield* options.services.keys();
        yield* options.agents.names;
      },
    };
    this.#waiting = new WaitingClients(context, Math.min(MAX_WAITING, Math.ceil(limits.connections / 2)));
    this.#proxy = new HttpProxy(context, {
      internal,
      waiting: this.#waiting,
      ownNames,
      limits: {
        responseTimeout: options.responseTimeout ?? 5 * MINUTE,
        keepAlive: 10_000,
        maxHeaderSize: limits.headerBytes,
        streamWait: 5000,
      },
      onMalformedResponse: (endpoint, reason) => {
        const { onRefusedAnswer } = context.options;
        this.#logMalformed(endpoint, reason);
        if (onRefusedAnswer) onRefusedAnswer(endpoint.forwardsTo, reason);
        else endpoint.answerRefused?.(reason);
      },
      admit: (req, endpoint) => this.#routing.admitElsewhere(req, endpoint),
      onFailure: (req, res, error) => this.#fail(req, res, error),
      namedPort: ({ socket, headers }) => this.#named.get(socket) ?? options.placeOf?.(hostNameOf(headers.host ?? '')),
      serveAgain: (req, res, endpoint) => this.#routing.serveAgain(req, res, endpoint),
      serveElsewhere: (req, res, endpoint) => this.#routing.serveElsewhere(req, res, endpoint),
    });
    this.#routing = new Routing(context, {
      named: this.#named,
      ...{ ...options, limits, clients: connections, proxy: this.#proxy, waiting: this.#waiting },
      serve: (req, res, scheme) => this.#serve(req, res, scheme),
    });
    this.#services = new ServiceServer(options.services, limits, options.serviceMessages);
    this.#certificates = new CertificateSelection({
      ...{ ca, domains, domainOf, log },
      defaultNames: [...new Set([DEFAULT_NAME, context.options.host, ...(ip === null ? [] : [ip])])],
      servedAs: (name) => this.#servedAs(name),
      isOwnName: (name) => options.services.has(name) || [...options.agents.names, ip].includes(name),
    });
    this.#streams = new StreamProxy(context, { internal, idleTimeout: options.streamIdleTimeout });
    const handshakes = new Handshakes(this.#certificates, options.authorityPem, options.agentTickets);
    const parts = { internal, handshakes, streams: this.#streams };
    this.#edges = options.tlsEdges(parts);
    const http = { limits, memory: clientMemory(limits.memory), counters, log };
    this.#mux = this.#tlsMux(http, connections, parts);
    // One direction of an upgraded connection may end before the other, but not over TLS.
    this.#https = this.#listener(false, (socket) => this.#mux.accept(socket));
    this.#http = this.#plainListener(http, connections);
  }

  /** All numbers by which the public TLS port is known. */
  get tlsPorts(): readonly number[] {
    return this.#tlsPorts;
  }

  async start(): Promise<{ httpPort: number; httpsPort: number }> {
    const { endpoints, options } = this.context;
    const { host, httpPort, httpsPort, heldSockets: held = [] } = options;
    endpoints.on('retired', this.#onRetired);
    endpoints.on('removed', this.#onRemoved);
    this.#waiting.start();
    try {
      await this.#certificates.prepare();
      const chosen = {
        httpPort: await listen(this.#http, { host, port: httpPort }, held),
        httpsPort: await listen(this.#https, { host, port: httpsPort }, held),
      };
      this.#tlsPorts = [chosen.httpsPort, USUAL_PORT];
      this.#edges.openPorts(host, this.#tlsPorts, (socket, route) =>
        this.#behindBalancers((client) => this.#mux.accept(client, route))(socket),
      );
      return chosen;
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  /** Serves a client that came to a port of the gateway's address. */
  acceptAt(client: Socket, at: NamedPort): void {
    this.#mux.accept(client, undefined, at);
  }

  /** The connections of clients that are open. */
  *clients(): Iterable<Socket> {
    yield* this.#mux.pending();
    for (const slots of this.#slots) yield* slots.clients();
  }

  /** Ends idle connections of clients, and lets the others finish what is under way. Call it repeatedly. */
  finish(): void {
    for (const port of this.#clients) port.finish();
    this.#services.closeIdle();
    this.#services.endStreams();
    this.options.relays?.closeIdle();
  }

  /** Accepts no further connections; those that are open go on. */
  stopListening(): void {
    this.#http.close();
    this.#https.close();
    this.#edges.closePorts();
  }

  async stop(): Promise<void> {
    const closed = Promise.all([close(this.#http), close(this.#https)]);
    this.#waiting.stop();
    this.context.endpoints.off('retired', this.#onRetired);
    this.context.endpoints.off('removed', this.#onRemoved);
    this.#proxy.close();
    this.#edges.closePorts();
    this.#services.close();
    for (const socket of this.#connections) socket.destroy();
    this.options.relays?.stop();
    await closed;
  }

  #listener(allowHalfOpen: boolean, accept: (socket: Socket) => void): Server {
    const identified = this.#behindBalancers(accept);
    return createServer({ allowHalfOpen, noDelay: true }, (socket) => {
      noteArrival();
      this.#connections.add(socket);
      socket.once('close', () => this.#connections.delete(socket));
      identified(socket);
    });
  }

  #behindBalancers(accept: (client: Socket) => void): (socket: Socket) => void {
    return LoadBalancers.before(this.context.balancers, accept);
  }

  #plainListener(http: Omit<HttpClientsOptions, 'handler'>, connections: ClientConnections): Server {
    const { limits } = http;
    const { relays } = this.options;
    const clients = new HttpClients({ ...http, handler: { onRequest: (req, res) => this.#serve(req, res, 'http') } });
    this.#clients.push(clients);
    const slots = new ConnectionSlots({
      limit: limits.connections,
      closeIdle: (choice) => closeLongestIdle(choice, clients),
      progressTimeout: limits.progressTimeout,
    });
    this.#slots.push(slots);
    const serve = (socket: Socket) => {
      this.context.counters.connected(socket, 'http');
      connections.opened(socket);
      clients.accept(socket);
    };
    const accept = (socket: Socket) => {
      if (!slots.take(socket)) return;
      slots.expectProgress(socket);
      if (relays) void this.#relayOr(serve, socket, relays.nodeForHttp(socket, limits.headersTimeout));
      else serve(socket);
    };
    relays?.on('http', accept).on('forgotten', (endpoint) => this.#proxy.remove(endpoint));
    return this.#listener(true, accept);
  }

  /** Serves a connection here, unless another node serves what its first request is for. */
  async #relayOr(
    serve: (socket: Socket) => void,
    socket: Socket,
    elsewhere: Promise<NodePlace | undefined>,
  ): Promise<void> {
    const ignore = () => {};
    // An error is followed by 'close'.
    socket.on('error', ignore);
    const node = await elsewhere;
    if (socket.destroyed) return;
    if (node) return this.options.relays?.send(socket, node, 'http');
    socket.off('error', ignore);
    serve(socket);
  }

  #tlsMux(http: Omit<HttpClientsOptions, 'handler'>, connections: ClientConnections, parts: TlsRouteParts): TlsMux {
    const { services, domainOf, challenges, agents, isRefused, relays } = this.options;
    const onRequest = (req: ClientRequest, res: ClientResponse) => this.#serve(req, res, 'https');
    const clients = new HttpClients({ ...http, handler: { onRequest, services: this.#services } });
    this.#clients.push(clients);
    const limits = { ...TLS_LIMITS, ...this.options.tlsLimits };
    const slots = new ConnectionSlots({
      limit: limits.connections,
      closeIdle: (choice) => closeLongestIdle(choice, clients) || closeLongestIdle(choice, httpAtPorts),
      // Node does not report whether it closed any: the next connection may find a free slot.
      onFull: () => this.#services.closeIdle(),
      progressTimeout: http.limits.progressTimeout,
    });
    this.#slots.push(slots);
    const httpAtPorts = new HttpClients({ ...http, handler: { onRequest } });
    this.#clients.push(httpAtPorts);
    const { ip = null, acme = null } = this.context.options;
    const isHidden = (host: string, name: string) => this.#isHidden(host, name);
    return new TlsMux(this.context, {
      ...parts,
      edges: this.#edges.routeAt(() => this.#tlsPorts, isHidden),
      http: clients,
      ...{ httpAtPorts, named: this.#named, ip, agentsTrustPublicCas: acme?.ownNames === 'all' },
      connections,
      allowsHttp2: http.limits.streams > 0,
      challenges: challenges.tlsAlpn,
      ...{ agents, services, domainOf, isRefused, relays, slots, limits },
      waiting: this.#waiting,
    });
  }

  /** @returns the name itself, or the wildcard whose endpoint serves it; null when nothing does */
  #servedAs(name: string): string | null {
    const { endpoints } = this.context;
    const { services, agents } = this.options;
    const { ip = null } = this.context.options;
    const isOwn = services.has(name) || [...agents.names, ip].includes(name) || this.#edges.hasName(name);
    if (isOwn) return name;
    const online = endpoints.peek('https', name) ?? endpoints.peek('tls', name);
    const lost = online === undefined ? endpoints.lost.covering('tls', name) : undefined;
    const bound = online?.host ?? (lost ? nameOfPlace(lost.place) : null);
    // Clients may know what was bound under a name by another one.
    return bound === null || coveringNames(name).includes(bound) ? bound : name;
  }

  /** Whether a service or an endpoint takes precedence over an edge's host, perhaps a wildcard, for a name. */
  #isHidden(edgeHost: string, name: string): boolean {
    const { endpoints } = this.context;
    const { services } = this.options;
    if (services.has(name)) return true;
    const host = (endpoints.peek('https', name) ?? endpoints.peek('tls', name))?.host;
    if (host === undefined || !edgeHost.startsWith('*.')) return false;
    return !host.startsWith('*.') || host.length > edgeHost.length;
  }

  /** Catches everything: a bug costs one request, never the process. */
  #serve(req: ClientRequest, res: ClientResponse, scheme: Scheme): void {
    if (this.options.relays?.isVoid(req.socket)) {
      resetConnection(req.socket);
      return;
    }
    try {
      if (req.method === PROBE_METHOD && this.#isProbe(req)) {
        this.#answerProbe(req, res, scheme);
        return;
      }
      const admission = this.#routing.route(req, res, scheme);
      if (admission) this.#proxy.handle(req, res, admission);
    } catch (error) {
      this.#fail(req, res, error);
    }
  }

  /** Only those of the gateways have the key. */
  #isProbe({ headers, rawHeaders }: ClientRequest): boolean {
    const { probeTokens } = this.options;
    const token = probeTokens ? headerValue(rawHeaders, PROBE_HEADER) : undefined;
    return token !== undefined && probeTokens?.isValid(hostNameOf(headers.host ?? ''), token) === true;
  }

  /** Says what a client would get here. */
  #answerProbe(req: ClientRequest, res: ClientResponse, scheme: Scheme): void {
    const answer = (outcome: ProbeOutcome): void => {
      if (res.destroyed) return;
      res.shouldKeepAlive = false;
      res.isProbe = true;
      res.writeHead(200, [PROBE_HEADER, probeText(outcome), 'cache-control', 'no-store', 'content-length', '0']);
      res.end();
    };
    const found = this.#routing.probed(req, scheme);
    if ('stage' in found) answer(found);
    else
      this.#proxy
        .examine(req, res, found)
        .then(answer)
        .catch((error: unknown) => this.#fail(req, res, error));
  }

  #logMalformed({ id, url, forwardsTo: upstream }: GatewayEndpoint, reason: string): void {
    const times = this.#malformed.timesDue(id);
    if (times !== null && this.#malformedLines.tryTake(performance.now()))
      this.context.log.warn({ url, upstream, reason, times }, 'invalid response of an upstream');
  }

  #fail(req: ClientRequest, res: ClientResponse, error: unknown): void {
    this.context.log.error({ err: error }, 'request failed unexpectedly');
    answerError(req, res, internalFailure());
  }
}

function close(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
  });
}
