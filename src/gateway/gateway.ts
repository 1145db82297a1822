import { join } from 'node:path';
import { CleanupStack } from '../lib/cleanup-stack.ts';
import { ExpressMessages } from '../lib/http/express-messages.ts';
import { OneTimeCodes } from '../lib/http/one-time-code.ts';
import { descriptorLimit } from '../lib/process/descriptor-limit.ts';
import type { EdgeLimits } from '../settings/gateway-limits.ts';
import type { PolicyPorts } from '../traffic-policy/ports.ts';
import { VERSION } from '../version.ts';
import { ipPolicyRules } from './access/ip-policy-rules.ts';
import type { ManagementApiDependencies } from './api/management-api.ts';
import { TlsAlpnChallenges } from './certificates/challenges/challenge-tls-alpn.ts';
import { HttpChallenges, TxtChallenges } from './certificates/challenges/challenges.ts';
import { DomainCertificates } from './certificates/domain-certificates.ts';
import { type LocalCa, openLocalCa } from './certificates/local-ca/local-ca.ts';
import { startCertificateRenewal } from './certificates/start-certificate-renewal.ts';
import { type DescriptorShares, descriptorShares } from './descriptor-shares.ts';
import { DeviceSightings } from './devices/device-sightings.ts';
import { joinOrigin } from './devices/gateway-place.ts';
import { EdgeServer } from './edge/edge-server.ts';
import { HTTP_LIMITS } from './edge/http/http-limits.ts';
import { lazyListener } from './edge/service-server.ts';
import { AgentConnections } from './edge/tls/agent-connections.ts';
import { TLS_LIMITS, type TlsRouteParts } from './edge/tls-mux.ts';
import {
  apiHost,
  connectHost,
  type DomainSettings,
  gatewayDomains,
  ownDomainOf,
  sessionAddress,
  tcpHost,
} from './endpoints/domain-names.ts';
import type { Labels } from './endpoints/endpoint.ts';
import { urlOf } from './endpoints/endpoint-address.ts';
import { EndpointPolicies } from './endpoints/endpoint-policies.ts';
import { EndpointRegistry } from './endpoints/endpoint-registry.ts';
import type { GatewayOptions } from './gateway-options.ts';
import { watchProcess } from './metrics/process-watch.ts';
import { TrafficCounters } from './metrics/traffic-counters.ts';
import { LiveAgents } from './sessions/live-agents.ts';
import type { SessionServer } from './sessions/session-server.ts';
import { startSessions } from './start-sessions.ts';
import { checkCompanionFiles, openGatewayStore } from './store/open-gateway-store.ts';
import type { Store } from './store/store.ts';
import { issueEmbeddedAuthtoken } from './store/tokens.ts';
import { TlsEdgeIndex } from './tls-edges/edge-index.ts';
import { LiveWithEdges } from './tls-edges/edge-live.ts';
import { TlsEdges } from './tls-edges/tls-edges.ts';

export interface Gateway {
  /** `host:port` for the SDK's `serverAddr`. */
  readonly sessionAddress: string;
  /** PEM certificate of the CA, for the SDK's `caCert`. */
  readonly sessionCa: string;
  readonly httpPort: number;
  readonly httpsPort: number;
  /** Null: agents use the HTTPS port only. */
  readonly sessionPort: number | null;
  /** Port of the challenge DNS; null: disabled. */
  readonly dnsPort: number | null;
  /** File with the CA's certificate, for `curl --cacert`. */
  readonly caFile: string;
  readonly apiUrl: string;
  readonly endpoints: EndpointRegistry;
  readonly sessions: SessionServer;
  readonly store: Store;
  /** Issues the authtoken for an agent in this process; it replaces the previous one. */
  issueAuthtoken(): Promise<string>;
  /** Stops everything and closes all clients' connections and sessions. */
  close(): Promise<void>;
}

/**
 * Starts a gateway in this process.
 *
 * @throws {OperatorError} when its data folder cannot be used; the system's error when it cannot listen on a port
 */
export async function startGateway(options: GatewayOptions): Promise<Gateway> {
  const { dataDir, encryptionKey = null } = options;
  const ca = await openLocalCa(join(dataDir, 'gateway'), options.log);
  const store = openGatewayStore({ dataDir, encryptionKey });
  const { unwritable } = store.database;
  if (unwritable !== null) {
    const reason = unwritable.message;
    options.log.warn({ reason }, 'disk is read-only or full: existing accounts keep working, changes are rejected');
  }
  const cleanup = new CleanupStack(options.log);
  cleanup.add(() => store.database.close());
  try {
    await checkCompanionFiles(store, ca, options.log);
    const parts = await startParts(options, ca, store, (stop) => cleanup.add(stop));
    return { ...parts, store, sessionCa: ca.caPem, caFile: ca.caFile, close: () => cleanup.run() };
  } catch (error) {
    // The operator needs the error that prevented the start; cleanup errors are in the log.
    await cleanup.run().catch(() => {});
    throw error;
  }
}

async function startParts(
  options: GatewayOptions,
  ca: LocalCa,
  store: Store,
  onStop: (stop: () => Promise<void>) => void,
) {
  const { host, httpPort, httpsPort, log } = options;
  const shares = descriptorShares(descriptorLimit());
  const domains = gatewayDomains(options.domain.toLowerCase());
  const { baseDomain } = domains;
  const nameForAgents = connectHost(baseDomain);
  const endpoints = new EndpointRegistry();
  const services = new Map();
  const serviceMessages = new ExpressMessages();
  const challenges = { http: new HttpChallenges(), tlsAlpn: new TlsAlpnChallenges(), txt: new TxtChallenges() };
  const byLocalCa = options.acme?.ownNames === 'all' ? null : nameForAgents;
  const domainCertificates = new DomainCertificates(store, byLocalCa, log);
  const domainOf = (name: string) => store.reservedDomains.covering(name)?.domain ?? ownDomainOf(name, domains);
  const counters = new TrafficCounters();
  const stopWatching = watchProcess(counters, log);
  onStop(async () => stopWatching());
  const authorityPem = (id: string) => store.certificateAuthorities.get(id)?.ca_pem ?? null;
  const agents = new AgentConnections(nameForAgents);
  const ipPolicies = ipPolicyRules(store);
  const policies = new EndpointPolicies({
    ipPolicies,
    hasCertificateAuthority: (id) => authorityPem(id) !== null,
    fetch: options.fetchForPolicies,
    share: options.agentLimits?.policyShare,
    log,
  });
  const edgeIndex = new TlsEdgeIndex(store, log);
  const withLabels = (labels: Labels) => endpoints.withLabels(labels);
  const tlsEdges = (parts: TlsRouteParts) =>
    new TlsEdges({ index: edgeIndex, store, policies, withLabels, log, ...parts });
  const edge = new EdgeServer({
    endpoints,
    tlsEdges,
    ca,
    domainCertificates,
    domainOf,
    authorityPem,
    challenges,
    services,
    serviceMessages,
    agents,
    host,
    httpPort,
    httpsPort,
    ...edgeServerLimits(options.edgeLimits, shares),
    counters,
    log,
  });
  const ports = await edge.start();
  onStop(() => edge.stop());

  const { sessions, sessionPort } = await startSessions(
    options,
    { ca, store, domains, endpoints, policies, ports, shares, counters },
    onStop,
  );
  agents.open(sessions);

  const { acme = null, challengeDns = null, dataDir } = options;
  const provisioning = await startCertificateRenewal(
    { acme, challengeDns },
    { ca, store, domains, challenges, dataDir, log },
    onStop,
  );

  const nameOfApi = apiHost(baseDomain);
  const apiUrl = options.apiUrl ?? urlOf({ protocol: 'https', host: nameOfApi, port: ports.httpsPort });
  const addressOfSessions = sessionAddress({ host, baseDomain, sessionPort, httpsPort: ports.httpsPort });
  const place = {
    ...joinOrigin(options.apiUrl ?? null, baseDomain, ports.httpsPort),
    sessionAddress: addressOfSessions,
    tcpHost: tcpHost(baseDomain),
    caPem: ca.caPem,
    publicNames: acme?.ownNames ?? ('none' as const),
  };
  const live = new LiveWithEdges(new LiveAgents(sessions, endpoints, log), edgeIndex);
  const sightings = new DeviceSightings(store, log);
  await sightings.start(sessions);
  onStop(() => sightings.stop());
  const apiParts = {
    messages: serviceMessages,
    store,
    live,
    sightings,
    counters,
    log,
    domains,
    ipPolicies,
    dnsServers: acme?.resolvers ?? null,
    place,
    signInCodes: new OneTimeCodes(),
    wakeCertificateRenewal: provisioning.wake,
  };
  services.set(
    nameOfApi,
    lazyListener(() => managementApi({ ...options, apiUrl }, apiParts), log),
  );
  return {
    sessionAddress: addressOfSessions,
    ...ports,
    sessionPort,
    dnsPort: provisioning.dnsPort,
    apiUrl,
    endpoints,
    sessions,
    issueAuthtoken: () => issueEmbeddedAuthtoken(store),
  };
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

interface ApiParts extends Omit<ManagementApiDependencies, 'checkTrafficPolicy' | 'clock'> {
  messages: ExpressMessages;
  domains: DomainSettings;
  ipPolicies: PolicyPorts['ipPolicies'];
}

async function managementApi(options: GatewayOptions & { apiUrl: string }, parts: ApiParts) {
  const { messages, domains, ipPolicies, ...dependencies } = parts;
  const [{ createManagementApi, DEFAULT_LIMITS }, { trafficPolicyCheck }] = await Promise.all([
    import('./api/management-api.ts'),
    import('./api/traffic-policy-check.ts'),
  ]);
  const settings = { ...DEFAULT_LIMITS, ...options.limits, baseUrl: options.apiUrl, version: VERSION, domains };
  const app = createManagementApi({ ...dependencies, checkTrafficPolicy: trafficPolicyCheck(ipPolicies) }, settings);
  messages.adopt(app);
  return app;
}
