import { AuthtokenAcl } from './access/authtoken-acl.ts';
import { AuthtokenAuthentication } from './access/authtoken-authentication.ts';
import type { RestrictedAddresses } from './access/ip-rules.ts';
import type { OnlineCloudEndpoints } from './cloud-endpoints/online-cloud-endpoints.ts';
import { SiteNameGrants } from './devices/site-name-grants.ts';
import { internalLookup } from './edge/connections/connect-phase.ts';
import type { Relays } from './edge/relays/relays.ts';
import { TcpListeners } from './edge/streams/tcp-listeners.ts';
import { connectHost } from './endpoints/domain-names.ts';
import type { EndpointPolicies } from './endpoints/endpoint-policies.ts';
import { TcpPortAllocator } from './endpoints/tcp-port-allocator.ts';
import { PolicyWatch } from './events/policy-watch.ts';
import type { GatewayStart } from './gateway-options.ts';
import { AGENT_LIMITS } from './sessions/agent-limits.ts';
import { EndpointBinder } from './sessions/endpoint-binder.ts';
import { MAX_UNAUTHENTICATED, SessionServer } from './sessions/session-server.ts';

interface SessionParts {
  policies: EndpointPolicies;
  restricted: RestrictedAddresses;
  relays: Relays | null;
  cloudEndpoints: OnlineCloudEndpoints;
}

/** Lets agents in, once the edge listens. @throws the system's error when it cannot listen on the port for agents */
export async function startSessions(start: GatewayStart, parts: SessionParts) {
  const { options, ca, store, domains, addresses, endpoints, shares, balancers, counters, cluster } = start;
  const { policies, restricted } = parts;
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
  const tcp = openTcpPorts(start, parts);
  const watch = options.recordsPolicies === false ? null : new PolicyWatch(store, log);
  if (watch) start.onStop(() => watch.stop());
  const sessions = new SessionServer({
    access: new AuthtokenAuthentication(store, acl, names, (remoteAddress) =>
      restricted.refuses('agent', { remoteAddress }),
    ),
    binder: new EndpointBinder({
      endpoints,
      ids,
      policies,
      addresses,
      tcpPorts: tcp?.ports ?? null,
      leases,
      onPolicy: (endpoint, source) => {
        const { url, pooled, owner } = endpoint;
        const { access = [] } = endpoint.view();
        watch?.note({ url, pooled, access, credentialId: owner.credential.id, address: owner.address }, source);
      },
    }),
    ids,
    issueCertificate: () => ca.issue([...new Set([connectHost(baseDomain), host, 'localhost', '127.0.0.1', '::1'])]),
    host,
    port: options.sessionPort,
    held: options.heldSockets ?? [],
    unauthenticated: Math.min(MAX_UNAUTHENTICATED, shares.unauthenticated),
    leases,
    node: cluster?.sessionNode(connectHost(baseDomain)),
    limits: { ...options.agentLimits, sessions: Math.min(wantedSessions, shares.sessions) },
    balancers,
    counters,
    log,
  });
  const sessionPort = await sessions.start();
  start.onStop(() => sessions.stop());
  return { sessions, sessionPort, tcpListeners: tcp?.opener ?? null };
}

/** @returns null when tcp endpoints are disabled */
function openTcpPorts(
  { options, endpoints, store, shares, balancers, counters, cluster, log, onStop }: GatewayStart,
  { restricted, relays, cloudEndpoints }: SessionParts,
): { opener: TcpListeners; ports: TcpPortAllocator } | null {
  const { tcpPorts: range = null, edgeLimits: limits, host } = options;
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
  const ports = new TcpPortAllocator({ range, opener, memory: store.tcpPorts, maxOpen: shares.tcpPorts, log });
  return { opener, ports };
}
