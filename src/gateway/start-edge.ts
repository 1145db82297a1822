import { X509Certificate } from 'node:crypto';
import type { RequestListener } from 'node:http';
import { ExpressMessages } from '../lib/http/express-app.ts';
import type { EdgeLimits } from '../settings/gateway-settings.ts';
import type { RestrictedAddresses } from './access/ip-rules.ts';
import { DomainCertificates } from './certificates/domain-certificates.ts';
import type { DescriptorShares } from './descriptor-shares.ts';
import { EdgeServer } from './edge/edge-server.ts';
import { HTTP_LIMITS } from './edge/http/http-limits.ts';
import type { Relays } from './edge/relays/relays.ts';
import { AgentConnections } from './edge/tls/agent-connections.ts';
import { TLS_LIMITS } from './edge/tls-mux.ts';
import { apiHost, connectHost, ownDomainOf } from './endpoints/domain-names.ts';
import type { Labels } from './endpoints/endpoint.ts';
import type { EndpointPolicies } from './endpoints/endpoint-policies.ts';
import type { GatewayStart } from './gateway-options.ts';
import type { Store } from './store/store.ts';
import type { TlsEdgeRow } from './store/tls-edges.ts';
import { TlsEdgeIndex } from './tls-edges/edge-index.ts';
import { TlsEdges } from './tls-edges/tls-edges.ts';

/** What the edge hands on, and where other parts connect to it. */
export interface Edge {
  httpPort: number;
  httpsPort: number;
  agents: AgentConnections;
  services: Map<string, RequestListener>;
  serviceMessages: ExpressMessages;
  edgeIndex: TlsEdgeIndex;
  clients: Pick<EdgeServer, 'clients' | 'finish' | 'stopListening'>;
  /** Passes connections on to other gateways; null: this one is the only one. */
  relays: Relays | null;
}

interface EdgeParts extends Omit<Edge, 'httpPort' | 'httpsPort' | 'clients'> {
  policies: EndpointPolicies;
  restricted: RestrictedAddresses;
  domainCertificates: DomainCertificates;
}

/** Opens the public ports, whose numbers `start.addresses` has from then on. @throws the system's error */
export async function startEdge(
  start: GatewayStart,
  { policies, restricted }: Pick<EdgeParts, 'policies' | 'restricted'>,
): Promise<Edge> {
  const { options, store, domains, addresses, log, onStop } = start;
  const connect = connectHost(domains.baseDomain);
  const edgeIndex = new TlsEdgeIndex(store, log);
  const domainCertificates = new DomainCertificates(store, options.acme?.ownNames === 'all' ? null : connect, log);
  const services = new Map<string, RequestListener>();
  const relays = createRelays(start, { edgeIndex, domainCertificates, services, tlsPorts: () => server.tlsPorts });
  const parts = { agents: new AgentConnections(connect), services, serviceMessages: new ExpressMessages(), relays };
  const server = createServer(start, { ...parts, edgeIndex, policies, restricted, domainCertificates });
  await start.cluster?.catchUpFirst();
  const ports = await server.start();
  onStop(() => server.stop());
  Object.assign(addresses.ports, { http: ports.httpPort, https: ports.httpsPort });
  return { ...parts, ...ports, edgeIndex, clients: server };
}

interface RelayParts extends Pick<EdgeParts, 'edgeIndex' | 'domainCertificates'> {
  services: ReadonlyMap<string, RequestListener>;
  /** All numbers of the public TLS port, once it is open. */
  tlsPorts: () => readonly number[];
}

/** @returns null when this gateway is the only one */
function createRelays(
  { ca, store, domains, cluster }: GatewayStart,
  { edgeIndex, domainCertificates, services, tlsPorts }: RelayParts,
): Relays | null {
  if (cluster === null) return null;
  return cluster.relays({
    edgeAt: (name) => {
      const served = edgeIndex.at(name, tlsPorts());
      return served && { labels: labelsOf(served.row, store) };
    },
    isService: (name) => services.has(name),
    commonName: apiHost(domains.baseDomain),
    authority: ca.caPem,
    isOurs: (host, certificate) => {
      const pair = domainCertificates.pairFor(host);
      return pair !== null && new X509Certificate(pair.cert).raw.equals(certificate.raw);
    },
  });
}

function createServer(
  { options, ca, store, domains, shares, balancers, endpoints, cluster, counters, challenges, log }: GatewayStart,
  { policies, restricted, edgeIndex, domainCertificates, ...services }: EdgeParts,
): EdgeServer {
  const { host, httpPort, httpsPort, heldSockets: held = [], edgeLimits } = options;
  const withLabels = (labels: Labels) => {
    const tunnel = cluster === null ? endpoints.withLabels(labels) : cluster.withLabels(labels);
    return tunnel && 'node' in tunnel ? undefined : tunnel;
  };
  const isRefused = restricted.refusesClient;
  return new EdgeServer({
    endpoints,
    isRefused,
    tlsEdges: (parts) => new TlsEdges({ index: edgeIndex, store, policies, isRefused, withLabels, log, ...parts }),
    ca,
    domainCertificates,
    domainOf: (name) => store.reservedDomains.covering(name)?.domain ?? ownDomainOf(name, domains),
    authorityPem: (id) => store.certificateAuthorities.get(id)?.ca_pem ?? null,
    challenges,
    ...services,
    host,
    httpPort,
    httpsPort,
    held,
    ...edgeServerLimits(edgeLimits, shares),
    onRefusedAnswer: options.onRefusedAnswer,
    balancers,
    counters,
    log,
  });
}

/** What an edge selects tunnels by; null: it needs none. */
function labelsOf({ backend }: TlsEdgeRow, { tunnelGroupBackends }: Store): Labels | null {
  return backend?.enabled ? (tunnelGroupBackends.get(backend.backend_id)?.labels ?? null) : null;
}

/** The limits of the settings, as far as the file descriptors suffice for them. */
function edgeServerLimits(limits: EdgeLimits | undefined, shares: DescriptorShares) {
  const { connections: wanted = HTTP_LIMITS.connections, handshakeTimeout, streamIdleTimeout, ...http } = limits ?? {};
  const connections = Math.min(wanted, shares.connections);
  const hellos = Math.min(TLS_LIMITS.hellos, shares.hellos);
  return {
    tlsLimits: { connections, hellos, ...(handshakeTimeout !== undefined && { handshakeTimeout }) },
    httpLimits: { connections, ...http },
    ...(streamIdleTimeout !== undefined && { streamIdleTimeout }),
  };
}
