import type { RequestListener } from 'node:http';
import type { Socket } from 'node:net';
import type { Log } from '../../lib/log.ts';
import type { HttpChallenges } from '../certificates/challenges/challenge-http.ts';
import type { TlsAlpnChallenges } from '../certificates/challenges/challenge-tls-alpn.ts';
import type { DomainCertificates } from '../certificates/domain-certificates.ts';
import type { LocalCa } from '../certificates/local-ca/local-ca.ts';
import type { GatewayEndpoint } from '../endpoints/endpoint.ts';
import type { EndpointDirectory, InternalLookup } from '../endpoints/endpoint-directory.ts';
import { EdgePorts } from '../tls-edges/edge-ports.ts';
import { TlsEdges, type TlsEdgesOptions } from '../tls-edges/tls-edges.ts';
import type { TrafficCounters } from '../traffic-counters.ts';
import { HTTP_LIMITS, type HttpLimits } from './http/http-limits.ts';
import { StreamProxy } from './streams/stream-proxy.ts';
import { TlsEndpoints } from './streams/tls-endpoints.ts';
import type { AgentSockets } from './tls/agent-sockets.ts';
import { CertificateSelection } from './tls/certificate-selection.ts';
import { Handshakes } from './tls/handshakes.ts';
import { type HttpsServer, TlsMux, type TlsMuxLimits, type TlsRoute } from './tls/tls-mux.ts';

export interface PublicTlsOptions {
  endpoints: EndpointDirectory;
  ca: LocalCa;
  /** Certificates of reserved domains; left out: all come from the CA. */
  domainCertificates?: Pick<DomainCertificates, 'pairFor'>;
  /** What a certificate authority is answered that validates a name. */
  challenges?: { http: HttpChallenges; tlsAlpn: TlsAlpnChallenges };
  /** What the gateway itself answers over HTTPS, by lower-case hostname: the management API. */
  services?: ReadonlyMap<string, RequestListener>;
  /** Left out: agents come in elsewhere. */
  agents?: AgentSockets;
  /** Finds the certificate authorities that endpoints name by their identifier; left out: there are none. */
  authorityPem?: (id: string) => string | null;
  /** Left out: there are none. */
  tlsEdges?: Pick<TlsEdgesOptions, 'index' | 'store' | 'policies' | 'withLabels'>;
  /** Left out: the defaults. */
  doorLimits?: Partial<TlsMuxLimits>;
  /** Milliseconds without a byte after which a connection of bare bytes is cut; left out: the default. */
  streamIdleTimeout?: number;
  /** Left out: the defaults. */
  httpLimits?: Partial<HttpLimits> | undefined;
  /** Address to listen on. */
  host: string;
  counters: TrafficCounters;
  log: Log;
}

/** Name in the certificate that clients get who ask for none of ours. */
const DEFAULT_NAME = 'localhost';
/** As hostports name the public TLS port: by the number that is everybody's, too, for it may be redirected from there. */
const USUAL_PORT = 443;

/** All that is reached over TLS: the port that is shared, and the further ones that TLS edges name. */
export class PublicTls {
  readonly #options: PublicTlsOptions;
  readonly #certificates: CertificateSelection;
  readonly #door: TlsMux;
  readonly #streams: StreamProxy;
  readonly #edgePorts: EdgePorts | null = null;
  #ports: readonly number[] = [USUAL_PORT];

  constructor(options: PublicTlsOptions, https: HttpsServer) {
    const { endpoints, services, host, counters, log } = options;
    this.#options = options;
    this.#certificates = new CertificateSelection({
      ca: options.ca,
      domains: options.domainCertificates,
      defaultNames: [...new Set([DEFAULT_NAME, host])],
      servedAs: (name) => this.#servedAs(name),
      log,
    });
    const handshakes = new Handshakes(this.#certificates, options.authorityPem ?? (() => null));
    const streams = new StreamProxy({ idleTimeout: options.streamIdleTimeout, counters, log });
    this.#streams = streams;
    const lookup = (name: string) => endpoints.lookup('tls', name);
    const internal: InternalLookup = (...address) => endpoints.internal(...address);
    const parts = { internal, handshakes, streams };
    const routes: TlsRoute[] = [new TlsEndpoints({ lookup, ...parts })];
    const edges = options.tlsEdges ? new TlsEdges({ ...options.tlsEdges, ...parts, log }) : null;
    const isHidden = (edgeHost: string, name: string) => this.#isHidden(edgeHost, name);
    if (edges) routes.unshift(edges.at(() => this.#ports, isHidden));
    this.#door = new TlsMux({
      handshakes,
      challenges: options.challenges?.tlsAlpn,
      agents: options.agents,
      routes,
      httpsEndpoint: (name) => (services?.has(name) ? undefined : endpoints.peek('https', name)),
      https,
      http2: (options.httpLimits?.streams ?? HTTP_LIMITS.streams) > 0,
      limits: options.doorLimits,
      log,
    });
    if (!edges || !options.tlsEdges) return;
    const routeAt = (port: number) => edges.at(() => [port]);
    this.#edgePorts = new EdgePorts({ index: options.tlsEdges.index, door: this.#door, routeAt, host, log });
  }

  /** Finds out whether there can be certificates. */
  prepare(): Promise<void> {
    return this.#certificates.prepare();
  }

  /** @param port the one that all share */
  start(port: number): void {
    this.#ports = [port, USUAL_PORT];
    this.#edgePorts?.start(this.#ports);
  }

  /** Closes the further ports and cuts their connections. */
  stop(): void {
    this.#edgePorts?.stop();
  }

  /** Cuts what an endpoint that is offline has forwarded. */
  remove(endpoint: GatewayEndpoint): void {
    this.#streams.remove(endpoint);
  }

  /** Takes a connection to the shared port. */
  accept(socket: Socket): void {
    this.#door.accept(socket);
  }

  /** @returns the name itself, or the wildcard whose endpoint serves it; null when nobody does */
  #servedAs(name: string): string | null {
    const { endpoints, services, agents, tlsEdges } = this.#options;
    const isOwn = services?.has(name) || name === agents?.name || tlsEdges?.index.hasName(name) === true;
    return isOwn ? name : ((endpoints.peek('https', name) ?? endpoints.peek('tls', name))?.host ?? null);
  }

  /** Whether something else goes before an edge for visitors of a name. */
  #isHidden(edgeHost: string, name: string): boolean {
    const { endpoints, services } = this.#options;
    if (services?.has(name)) return true;
    const endpoint = endpoints.peek('https', name) ?? endpoints.peek('tls', name);
    return endpoint !== undefined && isMoreSpecific(endpoint.host, edgeHost);
  }
}

/** Whether a host, perhaps a wildcard, goes before another one that fits the same name. */
function isMoreSpecific(host: string, other: string): boolean {
  return other.startsWith('*.') && (!host.startsWith('*.') || host.length > other.length);
}
