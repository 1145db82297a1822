import type { RequestListener } from 'node:http';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { Repeats } from '../../lib/log/repeats.ts';
import { PendingConnections, PendingHandshake } from '../../lib/network/pending-connections.ts';
import type { ClientHello } from '../../lib/tls/client-hello.ts';
import { askedCas } from '../../lib/tls/pinned-chain.ts';
import { ACME_TLS_PROTOCOL, answerTlsAlpn, type TlsAlpnChallenges } from '../certificates/challenges/challenges.ts';
import type { EdgeContext } from '../context/gateway-context.ts';
import type {
  GatewayEndpoint,
  InternalAddress,
  InternalLookupFor,
  RefusesClient,
} from '../endpoints/online-endpoint.ts';
import type { NamedPort } from '../endpoints/port-names.ts';
import type { HttpClients } from './clients/http-clients.ts';
import {
  ClientConnection,
  type ClientConnections,
  clientTls,
  findDestination,
  type HandshakePlan,
  HelloTls,
  planHandshake,
} from './connections/connect-phase.ts';
import type { WaitingClients } from './connections/waiting-clients.ts';
import { answerToPlainHttp, resetConnection } from './http/error-response.ts';
import { hostNameOf } from './http/headers.ts';
import type { NodePlace } from './relays/other-nodes.ts';
import type { Relays } from './relays/relays.ts';
import type { StreamProxy } from './streams/stream-proxy.ts';
import type { AgentConnections } from './tls/agent-connections.ts';
import type { ConnectionSlots } from './tls/connection-slots.ts';
import { type Handshakes, type HelloClient, mergeDemands } from './tls/handshakes.ts';

export interface TlsEdgeRoute {
  /** @returns false when no edge serves the connection; it is unchanged then */
  serve(client: HelloClient): Promise<boolean>;
}

export interface TlsEdgeRouter {
  hasName(name: string): boolean;
  /** @param ports all numbers of the port, in order of precedence; `isHidden`: something else takes precedence for a name */
  routeAt(ports: () => readonly number[], isHidden?: (host: string, name: string) => boolean): TlsEdgeRoute;
  /** Opens the further ports that hostports name; `shared`: numbers of the shared port. `accept` takes their connections. */
  openPorts(host: string, shared: readonly number[], accept: (socket: Socket, route: TlsEdgeRoute) => void): void;
  closePorts(): void;
}

/** What connections are served with once their ClientHello has been read. */
export interface TlsRouteParts {
  internal: InternalLookupFor;
  handshakes: Handshakes;
  streams: StreamProxy;
}

export interface TlsLimits {
  /** Milliseconds from the connection to the client's turn, and from there to the end of the handshake. */
  handshakeTimeout: number;
  /** Connections that are sending their ClientHello, or handshaking as an agent; see {@link PendingConnections}. */
  hellos: number;
  /** Client connections; see {@link ConnectionSlots}. Agents are limited by the session server. */
  connections: number;
}

export const TLS_LIMITS: TlsLimits = { handshakeTimeout: 10_000, hellos: 1024, connections: 8192 };

/** Fatal alerts (RFC 8446, section 6), as complete records. */
const DECODE_ERROR = Buffer.from('15030300020232', 'hex');
const UNRECOGNIZED_NAME = Buffer.from('15030300020270', 'hex');

/** Clients that offer protocols, but none of these, are refused. */
const HTTP1 = ['http/1.1', 'http/1.0'];
const HTTP2_OR_1 = ['h2', ...HTTP1];

/**
 * Takes TLS connections from their ClientHello to what serves them. Agents, TLS edges, endpoints of the protocol `tls`
 * and HTTPS share one port.
 *
 * The gateway performs the handshakes itself. Node's servers begin with a default certificate, which OpenSSL goes on to
 * prefer when its key type differs from that of the certificate that SNICallback finds.
 */
export class TlsMux {
  /** Of those that are sending their ClientHello, or handshaking as an agent: none counts as a client's yet. */
  readonly #pending: PendingConnections<PendingHandshake>;
  readonly #failures = new Repeats();

  constructor(
    private readonly context: EdgeContext,
    private readonly options: TlsRouteParts & {
      edges: TlsEdgeRoute;
      http: HttpClients;
      /** Of those that come to ports of the gateway's address: none of its services is there. */
      httpAtPorts: HttpClients;
      /** The name that a connection at such a port is for. */
      named: WeakMap<Socket, NamedPort>;
      /** The gateway's address; null: clients reach it by names. */
      ip: string | null;
      /** Whether agents verify the certificate for that address with public CAs, as clients do. */
      agentsTrustPublicCas: boolean;
      connections: ClientConnections;
      allowsHttp2: boolean;
      challenges: Pick<TlsAlpnChallenges, 'context'>;
      agents: AgentConnections;
      services: ReadonlyMap<string, RequestListener>;
      /** The domain or wildcard of this gateway that a name belongs to. */
      domainOf: (name: string) => string | null;
      isRefused: RefusesClient;
      relays: Relays | null;
      waiting: WaitingClients;
      slots: ConnectionSlots;
      limits: Pick<TlsLimits, 'handshakeTimeout' | 'hellos'>;
    },
  ) {
    this.#pending = new PendingConnections(
      () => options.limits.hellos,
      ({ socket }) => socket.destroy(),
    );
  }

  /** Connections of which nobody knows yet whose they are. */
  *pending(): Iterable<Socket> {
    for (const { socket } of this.#pending) yield socket;
  }

  /**
   * @param only the edges of a further port; left out: the connection came to the shared port
   * @param at a port of the gateway's address
   */
  accept(socket: Socket, only?: TlsEdgeRoute, at?: NamedPort): void {
    const { limits, slots } = this.options;
    // An error is followed by 'close', for which each part that a connection passes has a listener: some ten.
    socket.on('error', () => {});
    socket.setMaxListeners(20);
    const timer = setTimeout(() => socket.destroy(), limits.handshakeTimeout);
    const pending = new PendingHandshake(socket);
    const handshakeBegins = () => {
      timer.refresh();
      pending.begins();
      slots.handshakeBegins(socket);
    };
    const handshakeDone = () => {
      clearTimeout(timer);
      slots.setEvictable(socket, false);
    };
    socket.once('close', handshakeDone);
    this.#pending.add(pending);
    this.#serve(pending, { handshakeBegins, handshakeDone }, only, at)
      .catch((error: unknown) => {
        this.#reportFailure(error);
        socket.destroy();
      })
      .finally(() => this.#pending.delete(pending));
  }

  async #serve(
    pending: PendingHandshake,
    progress: Pick<HelloClient, 'handshakeBegins' | 'handshakeDone'>,
    only: TlsEdgeRoute | undefined,
    at: NamedPort | undefined,
  ): Promise<void> {
    const { endpoints } = this.context;
    const { agents, edges, relays, slots } = this.options;
    const { socket } = pending;
    const hello = await pending.readHello();
    if (socket.destroyed) return;
    if (hello === null) return this.#serveOther(socket, progress, only);
    const hostName = hostNameOf(hello.serverName);
    if (at) return this.#serveAt(at, pending, { socket, hello, hostName: at.name, ...this.#address, ...progress });
    const isByAddress = hostName === '' && (hello.protocols.length > 0 || this.options.agentsTrustPublicCas);
    const client: HelloClient = { socket, hello, hostName, ...(isByAddress && this.#address), ...progress };

    // Before clients: none of these takes a slot.
    const serve = relays?.serviceFor(socket);
    if (serve) {
      const secured = await this.options.handshakes.secure(client);
      return secured === null ? undefined : serve(secured);
    }
    if (!only && this.#answerValidation(client)) return;
    if (!only && agents.names.includes(hostName)) {
      if (!relays?.passAgentOn(socket, 'tls', progress.handshakeDone)) await this.#serveAgent(client);
      return;
    }

    this.#pending.delete(pending);
    if (!slots.take(socket)) return;
    slots.setEvictable(socket, true);

    const inside = relays?.internalOf(socket);
    if (inside?.protocol === 'tls' || inside?.protocol === 'tcp') return this.#serveInternal(client, inside);
    const elsewhere = only || !relays ? undefined : await this.#elsewhere(client, relays);
    if (socket.destroyed) return;
    if (elsewhere && relays && (await this.#passOn(client, elsewhere, relays))) return;
    if (socket.destroyed || (await (only ?? edges).serve(client))) return;
    if (only) return void socket.end(UNRECOGNIZED_NAME);
    const isBack = await this.#waitForDemands(client);
    const moved = isBack && relays ? await this.#elsewhere(client, relays) : undefined;
    if (socket.destroyed || (moved && relays && (await this.#passOn(client, moved, relays)))) return;
    const endpoint = hostName === '' ? undefined : endpoints.lookup('tls', hostName);
    return endpoint ? this.#serveTls(client, endpoint) : this.#serveHttps(client);
  }

  /** Serves a client at a port of the gateway's address, whatever name it gives. */
  async #serveAt(at: NamedPort, pending: PendingHandshake, client: HelloClient): Promise<void> {
    const { endpoints } = this.context;
    const { slots } = this.options;
    const { socket } = client;
    this.#pending.delete(pending);
    if (!slots.take(socket)) return;
    slots.setEvictable(socket, true);
    await this.#waitForDemands(client);
    if (socket.destroyed) return;
    const endpoint = endpoints.lookup('tls', at.name);
    return endpoint ? this.#serveTls(client, endpoint, at) : this.#serveHttps(client, at);
  }

  /** Waits for an agent whose endpoint has demands of the handshake. With others, the requests wait. */
  async #waitForDemands({ socket, hostName }: HelloClient): Promise<boolean> {
    const { endpoints } = this.context;
    const { isRefused, waiting } = this.options;
    const lost = endpoints.lost.covering('tls', hostName);
    if (!lost?.needsHandshake || isRefused(socket) || waiting.hasWaited(socket)) return false;
    if (endpoints.peek('https', hostName) ?? endpoints.peek('tls', hostName)) return false;
    const isBack = await waiting.wait(lost, socket.remoteAddress, (leave) => socket.once('close', leave));
    if (!isBack) waiting.noteWaited(socket);
    return isBack;
  }

  /** A connection of another node; else, OpenSSL might find a name in it, and routing and policy would be those of another. */
  async #serveOther(
    socket: Socket,
    { handshakeDone }: Pick<HelloClient, 'handshakeDone'>,
    only: TlsEdgeRoute | undefined,
  ): Promise<void> {
    const service = await this.options.relays?.receive(socket);
    if (!service) return void socket.end(answerToPlainHttp(socket.read()) ?? DECODE_ERROR);
    handshakeDone();
    if (service === 'tls') this.accept(socket, only);
  }

  /** The node that a connection is passed on to; undefined: this one serves it, or none does. */
  async #elsewhere({ socket, hello, hostName }: HelloClient, relays: Relays): Promise<NodePlace | undefined> {
    if (isValidation(hello)) return relays.isRelayed(socket) ? undefined : relays.nodes.primary;
    return relays.nodeForTls(socket, hostName);
  }

  /**
   * Passes a connection on. When its node is lost, the agent comes back at another one, or at this one.
   * @returns false when this node serves it instead
   */
  async #passOn(client: HelloClient, node: NodePlace, relays: Relays): Promise<boolean> {
    const { socket, hostName, handshakeDone } = client;
    const { waiting } = this.options;
    try {
      await relays.pass(socket, node, 'tls');
      handshakeDone();
      return true;
    } catch {
      // Logged where it could not be reached.
      if (this.context.endpoints.peek('https', hostName) ?? this.context.endpoints.peek('tls', hostName)) return false;
      const lost = waiting.hasWaited(socket) ? undefined : relays.nodes.expectAt('tls', hostName);
      waiting.noteWaited(socket);
      if (!lost || !(await waiting.wait(lost, socket.remoteAddress, (leave) => socket.once('close', leave)))) {
        resetConnection(socket);
        return true;
      }
      const next = await this.#elsewhere(client, relays);
      return next !== undefined && this.#passOn(client, next, relays);
    }
  }

  /** Answers a certificate authority that validates a name by TLS-ALPN-01 (RFC 8737, section 3). */
  #answerValidation({ socket, hello }: HelloClient): boolean {
    const context = isValidation(hello) ? this.options.challenges.context(hello.serverName) : undefined;
    if (context !== undefined) answerTlsAlpn(socket, context);
    return context !== undefined;
  }

  async #serveAgent(client: HelloClient): Promise<void> {
    const { handshakes, agents, relays } = this.options;
    const secured = await handshakes.secure(client, { isAgent: true });
    if (secured === null) return;
    relays?.secured(client.socket, secured);
    agents.accept(secured);
  }

  /**
   * TLS passes through to the agent, or the edge terminates it with the agent's certificate or one of the gateway's own.
   *
   * @param at a port of the gateway's address; left out: the shared port
   */
  async #serveTls(client: HelloClient, endpoint: GatewayEndpoint, at?: NamedPort): Promise<void> {
    const { internal, handshakes, relays, streams } = this.options;
    const { socket, hostName, handshakeDone } = client;
    if (this.options.isRefused(socket)) return streams.deny(socket, endpoint);
    const startedAt = Date.now();
    const connection = new ClientConnection(socket, startedAt, new HelloTls(hostName));
    const to = findDestination(endpoint, connection, internal(socket));
    if (to === null) return streams.deny(socket, endpoint);
    // The demands of this endpoint also hold for clients that its policy forwards.
    const demands = mergeDemands(to.endpoint.tls, mergeDemands(endpoint.tls, to.termination));
    // Browsers send the cookies of all ports, and the endpoints that policies forward to were not bound for a port.
    if (at && demands?.certificate === null) return streams.deny(socket, endpoint);
    const info = { protocol: 'tls', through: to.through } as const;
    if (demands === null) {
      handshakeDone();
      streams.connectTo(socket, to.endpoint, to.connection, { ...info, passthrough: true });
      return;
    }
    const secured = await handshakes.secure(client, { demands, owner: payerOf(endpoint) });
    if (secured === null) return;
    relays?.secured(socket, secured);
    streams.connectTo(secured, to.endpoint, new ClientConnection(secured, startedAt, clientTls(secured)), info);
  }

  /** Serves what the policy of another gateway's endpoint has forwarded. */
  async #serveInternal(client: HelloClient, { protocol, host, port }: InternalAddress): Promise<void> {
    const { handshakes, relays, streams } = this.options;
    const endpoint = this.context.endpoints.internal(protocol, host, port);
    if (endpoint === undefined) return resetConnection(client.socket);
    if (!relays?.isDecrypted(client.socket)) return this.#serveTls(client, endpoint);
    const secured = await handshakes.secure(client);
    if (secured === null) return;
    relays.secured(client.socket, secured);
    streams.serve(secured, endpoint);
  }

  /** @param at a port of the gateway's address; left out: the shared port */
  async #serveHttps(client: HelloClient, at?: NamedPort): Promise<void> {
    const { endpoints } = this.context;
    const { internal, services, domainOf, allowsHttp2, handshakes, streams } = this.options;
    const { socket, hostName, hello } = client;
    const isService = services.has(hostName);
    const endpoint = isService ? undefined : endpoints.peek('https', hostName);
    const plan = planHandshake(client, endpoint, internal);
    if (plan === null) return endpoint ? streams.deny(socket, endpoint) : resetConnection(socket);
    // The gateway's own services use HTTP/1.1 only. Over HTTP/2, names without a certificate would get 421 for any host.
    const isKnown =
      endpoint !== undefined ||
      (!isService && (domainOf(hostName) !== null || endpoints.lost.covering('tls', hostName) !== undefined));
    const protocols = allowsHttp2 && isKnown ? HTTP2_OR_1 : HTTP1;
    const { demands } = plan;
    const owner = payerOf(endpoint);
    const secured = await handshakes.secure(client, { protocols, owner, ...(demands && { demands }) });
    if (secured === null) return;
    if (at) this.options.named.set(secured, at);
    // Agents ask for no protocol, or for a chain of the CA that they have pinned.
    const mayBeAgent = hello.protocols.length === 0 || askedCas(hello.protocols).length > 0;
    if (hostName === '' && mayBeAgent) this.#detectAgent(socket, secured, plan);
    else this.#serveHttp(socket, secured, plan);
  }

  #detectAgent(socket: Socket, secured: TLSSocket, plan: HandshakePlan): void {
    const { agents, slots } = this.options;
    slots.setEvictable(socket, true);
    secured.once('readable', () => slots.protect(socket));
    agents.detect(secured, () => this.#serveHttp(socket, secured, plan));
  }

  #serveHttp(socket: Socket, secured: TLSSocket, plan: HandshakePlan): void {
    const { relays, waiting, slots, connections, named } = this.options;
    const http = named.has(secured) ? this.options.httpAtPorts : this.options.http;
    relays?.secured(socket, secured);
    if (waiting.hasWaited(socket)) waiting.noteWaited(secured);
    slots.expectProgress(socket);
    this.context.counters.connected(secured, 'https');
    connections.opened(secured, plan);
    http.accept(secured);
  }

  get #address(): { address?: string } {
    const { ip } = this.options;
    return ip === null ? {} : { address: ip };
  }

  /** At most once a minute: a broken certificate fails at every connection, and anyone may connect. */
  #reportFailure(error: unknown): void {
    const failures = this.#failures.timesDue('TLS connection');
    if (failures !== null) this.context.log.error({ err: error, failures }, 'TLS connection failed');
  }
}

/** Who pays for what clients of an endpoint cost, see `PolicyTarget`. */
function payerOf(endpoint: GatewayEndpoint | undefined): string {
  return (endpoint?.isCloud ? endpoint.id : endpoint?.owner?.credential.id) ?? '';
}

function isValidation({ protocols }: ClientHello): boolean {
  return protocols.length === 1 && protocols[0] === ACME_TLS_PROTOCOL;
}
