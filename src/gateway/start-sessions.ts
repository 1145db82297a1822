import type { LoadBalancers } from '../lib/network/load-balancers.ts';
import { AuthtokenAcl } from './access/authtoken-acl.ts';
import { AuthtokenAuthentication } from './access/authtoken-authentication.ts';
import type { RestrictedAddresses } from './access/ip-rules.ts';
import type { LocalCa } from './certificates/local-ca/local-ca.ts';
import type { OnlineCloudEndpoints } from './cloud-endpoints/online-cloud-endpoints.ts';
import type { Cluster } from './cluster/cluster.ts';
import type { DescriptorShares } from './descriptor-shares.ts';
import { SiteNameGrants } from './devices/site-name-grants.ts';
import { internalLookup } from './edge/connections/connect-phase.ts';
import type { Relays } from './edge/relays/relays.ts';
import { TcpListeners } from './edge/streams/tcp-listeners.ts';
import { connectHost, type DomainSettings } from './endpoints/domain-names.ts';
import type { AddressSettings } from './endpoints/endpoint-address.ts';
import type { EndpointPolicies } from './endpoints/endpoint-policies.ts';
import type { EndpointRegistry } from './endpoints/endpoint-registry.ts';
import { TcpPortAllocator } from './endpoints/tcp-port-allocator.ts';
import type { GatewayOptions } from './gateway-options.ts';
import type { EdgeCounters } from './metrics/edge-counters.ts';
import { AGENT_LIMITS } from './sessions/agent-limits.ts';
import { EndpointBinder } from './sessions/endpoint-binder.ts';
import { MAX_UNAUTHENTICATED, SessionServer } from './sessions/session-server.ts';
import type { Store } from './store/store.ts';

type SessionOptions = Pick<GatewayOptions, 'host' | 'sessionPort' | 'tcpPorts' | 'edgeLimits' | 'agentLimits' | 'log'>;

interface SessionParts {
  ca: LocalCa;
  store: Store;
  domains: DomainSettings;
  endpoints: EndpointRegistry;
  policies: EndpointPolicies;
  restricted: RestrictedAddresses;
  /** With the ports of the edge, which is already listening. */
  addresses: AddressSettings;
  shares: DescriptorShares;
  balancers: LoadBalancers | null;
  counters: EdgeCounters;
  /** Null: this gateway is the only one. */
  cluster: Cluster | null;
  relays: Relays | null;
  cloudEndpoints: OnlineCloudEndpoints;
}

/** @throws the system's error when it cannot listen on the port for agents */
export async function startSessions(
  options: SessionOptions,
  {
    ca,
    store,
    domains,
    endpoints,
    policies,
    restricted,
    addresses,
    shares,
    balancers,
    counters,
    cluster,
    relays,
    cloudEndpoints,
  }: SessionParts,
  onStop: (stop: () => Promise<void>) => void,
) {
  const { host, log } = options;
  const { baseDomain } = domains;
  const { ids } = store;
  const acl = new AuthtokenAcl(store, domains, addresses.ports.https);
  const names = new SiteNameGrants({
    store,
    isOnlineElsewhere: (hostname, credentialId) =>
      endpoints.atName(hostname).some(({ owner, isCloud }) => !isCloud && owner.credential.id !== credentialId) ||
      cluster?.isNameOfOther(hostname, credentialId) === true,
    refuseName: (hostname) => acl.refuseName(hostname),
    log,
  });
  const { sessions: wantedSessions } = { ...AGENT_LIMITS, ...options.agentLimits };
  const leases = cluster?.leases ?? null;
  const sessions = new SessionServer({
    access: new AuthtokenAuthentication(store, acl, names, (remoteAddress) =>
      restricted.refuses('agent', { remoteAddress }),
    ),
    binder: new EndpointBinder({
      endpoints,
      ids,
      policies,
      addresses,
      tcpPorts: openTcpPorts(
        options,
        { endpoints, store, shares, balancers, counters, cluster, restricted, relays, cloudEndpoints },
        onStop,
      ),
      leases,
    }),
    ids,
    issueCertificate: () => ca.issue([...new Set([connectHost(baseDomain), host, 'localhost', '127.0.0.1', '::1'])]),
    host,
    port: options.sessionPort,
    unauthenticated: Math.min(MAX_UNAUTHENTICATED, shares.unauthenticated),
    leases,
    node: cluster?.sessionNode(connectHost(baseDomain)),
    limits: { ...options.agentLimits, sessions: Math.min(wantedSessions, shares.sessions) },
    balancers,
    counters,
    log,
  });
  const sessionPort = await sessions.start();
  onStop(() => sessions.stop());
  return { sessions, sessionPort };
}

/** @returns null when tcp endpoints are disabled */
function openTcpPorts(
  { tcpPorts: range = null, edgeLimits: limits, host, log }: SessionOptions,
  {
    endpoints,
    store,
    shares,
    balancers,
    counters,
    cluster,
    restricted,
    relays,
    cloudEndpoints,
  }: Omit<SessionParts, 'ca' | 'domains' | 'policies' | 'addresses'>,
  onStop: (stop: () => Promise<void>) => void,
): TcpPortAllocator | null {
  if (range === null) {
    cloudEndpoints.openPorts(null);
    return null;
  }
  const { tcpConnections: connections } = shares;
  const opener = new TcpListeners({
    host,
    endpoints,
    limits,
    connections,
    internal: internalLookup({ endpoints, relays }),
    isRefused: restricted.refusesClient,
    relays,
    balancers,
    counters,
    log,
  });
  onStop(async () => opener.stop());
  if (relays) relays.accept.tcp = (client, port) => opener.accept(client, port);
  cluster?.openPorts(opener);
  const stopOpening = cloudEndpoints.openPorts(opener);
  onStop(async () => stopOpening());
  return new TcpPortAllocator({ range, opener, memory: store.tcpPorts, maxOpen: shares.tcpPorts, log });
}
