import type { RequestListener } from 'node:http';
import type { Socket } from 'node:net';
import type { Log } from '../../lib/log/log.ts';
import type { HttpChallenges } from '../certificates/challenges/challenge-http.ts';
import type { TlsAlpnChallenges } from '../certificates/challenges/challenge-tls-alpn.ts';
import type { DomainCertificates } from '../certificates/domain-certificates.ts';
import type { LocalCa } from '../certificates/local-ca/local-ca.ts';
import type { GatewayEndpoint } from '../endpoints/endpoint.ts';
import type { EndpointDirectory, InternalLookup } from '../endpoints/endpoint-directory.ts';
import type { TrafficCounters } from '../metrics/traffic-counters.ts';
import { HTTP_LIMITS, type HttpLimits } from './http/http-limits.ts';
import { StreamProxy } from './streams/stream-proxy.ts';
import type { AgentConnections } from './tls/agent-connections.ts';
import { CertificateSelection } from './tls/certificate-selection.ts';
import { ConnectionSlots, type ConnectionSlotsOptions } from './tls/connection-slots.ts';
import { Handshakes } from './tls/handshakes.ts';
import { type HttpsParts, TLS_LIMITS, type TlsEdgeRoute, type TlsLimits, TlsMux } from './tls-mux.ts';

/** The TLS edges, as the public TLS port needs them. */
export interface TlsEdgeRouter {
  /** Whether an edge serves a name at any port. */
  hasName(name: string): boolean;
  /**
   * The route of the edges at a port.
   *
   * @param ports all numbers that hostports may name the port by, in order of precedence
   * @param isHidden whether something else takes precedence over an edge's host, perhaps a wildcard, for a name
   */
  routeAt(ports: () => readonly number[], isHidden?: (host: string, name: string) => boolean): TlsEdgeRoute;
  /**
   * Opens the further ports that hostports name.
   *
   * @param shared numbers of the shared port
   * @param accept takes connections to a further port
   */
  openPorts(host: string, shared: readonly number[], accept: (socket: Socket, route: TlsEdgeRoute) => void): void;
  /** Closes the further ports and all of their connections. */
  closePorts(): void;
}

/** What a {@link TlsEdgeRouter} serves connections with. */
export interface TlsRouteParts {
  internal: InternalLookup;
  handshakes: Handshakes;
  streams: StreamProxy;
}

export interface PublicTlsOptions {
  endpoints: EndpointDirectory;
  ca: LocalCa;
  /** Certificates of reserved domains; left out: all certificates come from the CA. */
  domainCertificates?: Pick<DomainCertificates, 'pairFor'>;
  /** The domain or wildcard of this gateway that a name belongs to, online or not; left out: it has no domains. */
  domainOf?: (name: string) => string | null;
  /** Answers to certificate authorities that validate a name. */
  challenges?: { http: HttpChallenges; tlsAlpn: TlsAlpnChallenges };
  /** The gateway's own services over HTTPS, such as the management API, by lower-case hostname. */
  services?: ReadonlyMap<string, RequestListener>;
  /** Left out: agents connect elsewhere. */
  agents?: AgentConnections;
  /** Finds the certificate authorities that endpoints name by their identifier; left out: there are none. */
  authorityPem?: (id: string) => string | null;
  /** Creates the router of the TLS edges; left out: there are no edges. */
  tlsEdges?: (parts: TlsRouteParts) => TlsEdgeRouter;
  /** Left out: the defaults. */
  tlsLimits?: Partial<TlsLimits>;
  /** Milliseconds without a byte after which a tcp or tls connection is closed; left out: the default. */
  streamIdleTimeout?: number;
  /** Left out: the defaults. */
  httpLimits?: Partial<HttpLimits> | undefined;
  /** Address to listen on. */
  host: string;
  counters: TrafficCounters;
  log: Log;
}

/** What the public TLS port shares with the other port. */
export interface PublicTlsParts extends Required<Pick<ConnectionSlotsOptions, 'closeIdle' | 'onFull'>> {
  https: HttpsParts;
  internal: InternalLookup;
}

/** Name in the certificate for clients that request an unknown name. */
const DEFAULT_NAME = 'localhost';
/** Hostports name the public TLS port by its usual number, too: connections may be redirected from there. */
const USUAL_PORT = 443;

/** Everything that is reached over TLS: the shared port and the further ports of TLS edges. */
export class PublicTls {
  readonly #options: PublicTlsOptions;
  readonly #certificates: CertificateSelection;
  readonly #mux: TlsMux;
  readonly #streams: StreamProxy;
  readonly #edges: TlsEdgeRouter | undefined;
  #ports: readonly number[] = [USUAL_PORT];

  constructor(options: PublicTlsOptions, { https, internal, closeIdle, onFull }: PublicTlsParts) {
    const { endpoints, services = new Map(), host, counters, log, agents, domainOf = () => null } = options;
    this.#options = options;
    this.#certificates = new CertificateSelection({
      ca: options.ca,
      domains: options.domainCertificates,
      defaultNames: [...new Set([DEFAULT_NAME, host])],
      servedAs: (name) => this.#servedAs(name),
      domainOf,
      log,
    });
    const limits = { ...TLS_LIMITS, ...options.tlsLimits };
    const { progressTimeout = HTTP_LIMITS.progressTimeout } = options.httpLimits ?? {};
    const slots = new ConnectionSlots({
      limit: limits.connections,
      closeIdle,
      onFull,
      progressTimeout,
    });
    const handshakes = new Handshakes(this.#certificates, options.authorityPem ?? (() => null));
    this.#streams = new StreamProxy({ idleTimeout: options.streamIdleTimeout, counters, log });
    const parts = { internal, handshakes, streams: this.#streams };
    this.#edges = options.tlsEdges?.(parts);
    const edges = this.#edges?.routeAt(
      () => this.#ports,
      (edgeHost, name) => this.#isHidden(edgeHost, name),
    );
    this.#mux = new TlsMux({
      ...parts,
      endpoints,
      edges: edges ?? null,
      https,
      challenges: options.challenges?.tlsAlpn,
      agents,
      services,
      domainOf,
      slots,
      limits,
      counters,
      log,
    });
  }

  /** Issues the default certificate, so that a CA that cannot issue any fails the start. */
  prepare(): Promise<void> {
    return this.#certificates.prepare();
  }

  /** @param port the shared one */
  start(port: number): void {
    this.#ports = [port, USUAL_PORT];
    this.#edges?.openPorts(this.#options.host, this.#ports, (socket, route) => this.#mux.accept(socket, route));
  }

  /** Closes the further ports and their connections. */
  stop(): void {
    this.#edges?.closePorts();
  }

  /** Closes the connections that an endpoint, now offline, has forwarded. */
  remove(endpoint: GatewayEndpoint): void {
    this.#streams.remove(endpoint);
  }

  /** Takes a connection to the shared port. */
  accept(socket: Socket): void {
    this.#mux.accept(socket);
  }

  /** @returns the name itself, or the wildcard whose endpoint serves it; null when nothing does */
  #servedAs(name: string): string | null {
    const { endpoints, services, agents } = this.#options;
    const isOwn = services?.has(name) || name === agents?.name || this.#edges?.hasName(name) === true;
    return isOwn ? name : ((endpoints.peek('https', name) ?? endpoints.peek('tls', name))?.host ?? null);
  }

  /** Whether a service or an endpoint takes precedence over an edge for a name. */
  #isHidden(edgeHost: string, name: string): boolean {
    const { endpoints, services } = this.#options;
    if (services?.has(name)) return true;
    const endpoint = endpoints.peek('https', name) ?? endpoints.peek('tls', name);
    return endpoint !== undefined && isMoreSpecific(endpoint.host, edgeHost);
  }
}

/** Whether a host, perhaps a wildcard, takes precedence over another that matches the same name. */
function isMoreSpecific(host: string, other: string): boolean {
  return other.startsWith('*.') && (!host.startsWith('*.') || host.length > other.length);
}
