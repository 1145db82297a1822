import { X509Certificate } from 'node:crypto';
import type { RequestListener } from 'node:http';
import { Agent } from 'node:https';
import { hostname } from 'node:os';
import { join } from 'node:path';

import { CleanupStack } from '../lib/cleanup-stack.ts';
import { ExpressMessages } from '../lib/http/express-app.ts';
import { OneTimeCodes } from '../lib/http/one-time-code.ts';
import type { Log } from '../lib/log/log.ts';
import { LoadBalancers } from '../lib/network/load-balancers.ts';
import { descriptorLimit } from '../lib/process/process-metrics.ts';
import { systemClock } from '../lib/time/clock.ts';
import { PACKAGED_REPLACER, VERSION } from '../packaged.ts';
import type { EdgeLimits } from '../settings/gateway-settings.ts';
import { fetchDocument, requestPublic } from '../traffic-policy/fetch-document.ts';
import type { PolicyPorts } from '../traffic-policy/ports.ts';
import { publicAddress, publicRequest } from '../traffic-policy/public-request.ts';
import { ReplacementThread } from '../traffic-policy/replacement-thread.ts';
import { ipPolicyRules, RestrictedAddresses } from './access/ip-rules.ts';
import { policySecrets } from './access/policy-secrets.ts';
import type { GatewayMetrics } from './api/gateway-metrics.ts';
import type { ManagementApiDependencies, ManagementApiSettings } from './api/management-api.ts';
import {
  type Challenges,
  HttpChallenges,
  TlsAlpnChallenges,
  TxtChallenges,
} from './certificates/challenges/challenges.ts';
import { DomainCertificates } from './certificates/domain-certificates.ts';
import { type LocalCa, openLocalCa } from './certificates/local-ca/local-ca.ts';
import { openSharedCa } from './certificates/local-ca/shared-ca.ts';
import { startCertificateRenewal } from './certificates/start-certificate-renewal.ts';
import { OnlineCloudEndpoints } from './cloud-endpoints/online-cloud-endpoints.ts';
import { Cluster } from './cluster/cluster.ts';
import { PERIODS } from './cluster/nodes.ts';
import { type DescriptorShares, descriptorShares } from './descriptor-shares.ts';
import { DeviceSightings } from './devices/device-sightings.ts';
import { type GatewayPlace, joinOrigin, signInOrigin } from './devices/gateway-place.ts';
import { EdgeServer, type EdgeServerOptions } from './edge/edge-server.ts';
import { HTTP_LIMITS } from './edge/http/http-limits.ts';
import type { Relays } from './edge/relays/relays.ts';

import { lazyListener } from './edge/service-server.ts';

import { AgentConnections } from './edge/tls/agent-connections.ts';
import { TLS_LIMITS } from './edge/tls-mux.ts';
import { AddressDatabases } from './endpoints/address-databases.ts';
import {
  apiHost,
  connectHost,
  type DomainSettings,
  gatewayDomains,
  ownDomainOf,
  sessionAddress,
  signInHost,
  tcpHost,
} from './endpoints/domain-names.ts';
import type { Labels } from './endpoints/endpoint.ts';
import { type AddressSettings, urlOf } from './endpoints/endpoint-address.ts';
import { EndpointPolicies } from './endpoints/endpoint-policies.ts';
import { EndpointRegistry } from './endpoints/endpoint-registry.ts';
import { countedBy, withStored } from './endpoints/live-view.ts';
import { ActivityLog, noteEndpoints, noteRefused, noteSessions, signInNotes } from './events/activity-log.ts';
import { EventDelivery } from './events/event-delivery.ts';
import type { GatewayOptions } from './gateway-options.ts';
import { EdgeCounters } from './metrics/edge-counters.ts';
import { watchProcess } from './metrics/process-watch.ts';
import { LiveAgents } from './sessions/live-agents.ts';
import type { SessionServer } from './sessions/session-server.ts';
import { createShareLinks, ownerOf } from './share-links/links.ts';
import { createSignIn } from './sign-in/create-sign-in.ts';
import { PeopleProvider } from './sign-in/people-provider.ts';
import { recordSignIns, signOut } from './sign-in/recorded-sign-ins.ts';
import { startSessions } from './start-sessions.ts';
import type { Activity } from './store/events.ts';
import { checkCompanionFiles, openForChanges } from './store/open-gateway-store.ts';
import type { Store } from './store/store.ts';
import type { TlsEdgeRow } from './store/tls-edges.ts';
import { issueEmbeddedAuthtoken } from './store/tokens.ts';
import { TlsEdgeIndex } from './tls-edges/edge-index.ts';
import { edgeEndpoints } from './tls-edges/prepared-edge.ts';
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

/** @throws {OperatorError} when its data folder cannot be used; the system's error when it cannot listen on a port */
export async function startGateway(options: GatewayOptions): Promise<Gateway> {
  const { dataDir, encryptionKey = null, databaseUrl = null, nodeAddress = null } = options;
  const folder = join(dataDir, 'gateway');
  const localCa = databaseUrl === null ? await openLocalCa(folder, options.log) : null;
  const { store, shared, close } = await openForChanges(
    { ...options, encryptionKey, databaseUrl },
    { older: 'upgrade', log: options.log },
  );
  const { unwritable } = store.database;
  if (unwritable !== null) {
    const reason = unwritable.message;
    options.log.warn({ reason }, 'disk is read-only or full: existing accounts keep working, changes are rejected');
  }
  const cleanup = new CleanupStack(options.log);
  cleanup.add(close);
  try {
    const ca = localCa ?? (await openSharedCa(folder, store, options.log));
    await checkCompanionFiles(store, ca, options.log);
    const endpoints = new EndpointRegistry();
    const { periods = PERIODS, log } = options;
    const cluster = shared && nodeAddress !== null ? new Cluster({ store, shared, endpoints, periods, log }) : null;
    await shared?.serve(
      { address: nodeAddress ?? hostname(), alone: cluster === null, build: VERSION },
      {
        onRemoved: options.onRemoved ?? (() => {}),
        ...(cluster && { onNodes: (...nodes) => cluster.update(...nodes) }),
      },
      periods.renewMs,
    );
    const { geo = null, asn = null } = options.addressDatabases ?? {};
    const addresses = geo || asn ? await AddressDatabases.open({ geo, asn }, options.log) : null;
    cleanup.add(async () => addresses?.close());
    const parts = await startParts({
      options,
      ca,
      store,
      domains: gatewayDomains(options.domain.toLowerCase()),
      shares: descriptorShares(descriptorLimit()),
      balancers: options.balancers?.length ? new LoadBalancers(options.balancers, options.log) : null,
      endpoints,
      cluster,
      counters: new EdgeCounters(),
      challenges: {
        http: new HttpChallenges(),
        tlsAlpn: new TlsAlpnChallenges(),
        txt: new TxtChallenges(cluster ? (...values) => cluster.publishChallenges(...values) : undefined),
      },
      ipPolicies: ipPolicyRules(store),
      addresses,
      log: options.log,
      onStop: (stop) => cleanup.add(stop),
    });
    return { ...parts, store, sessionCa: ca.caPem, caFile: ca.caFile, close: () => cleanup.run() };
  } catch (error) {
    // The operator needs the error that prevented the start; cleanup errors are in the log.
    await cleanup.run().catch(() => {});
    throw error;
  }
}

/** What the parts of a gateway share while it starts. */
interface Start {
  options: GatewayOptions;
  ca: LocalCa;
  store: Store;
  domains: DomainSettings;
  shares: DescriptorShares;
  balancers: LoadBalancers | null;
  addresses: AddressDatabases | null;
  endpoints: EndpointRegistry;
  /** Null: this gateway is the only one. */
  cluster: Cluster | null;
  counters: EdgeCounters;
  challenges: Challenges;
  ipPolicies: PolicyPorts['ipPolicies'];
  log: Log;
  onStop: (stop: () => Promise<void>) => void;
}

async function startParts(start: Start) {
  const { options, store, domains, endpoints, cluster, counters, ipPolicies, log, onStop } = start;
  const { acme = null, challengeDns = null, dataDir } = options;
  const stopWatching = watchProcess(counters, log);
  onStop(async () => stopWatching());
  const activity = new ActivityLog(store, log);
  // After the sessions, whose end is an event, too.
  onStop(() => activity.stop());
  const people = new PeopleProvider(store, signInHost(domains.baseDomain));
  const policies = createPolicies(start, people, activity);
  const restricted = new RestrictedAddresses(store, ipPolicies);
  const edgeIndex = new TlsEdgeIndex(store, log);
  const publicPorts = { http: options.httpPort, https: options.httpsPort };
  const cloudEndpoints = new OnlineCloudEndpoints({
    ...{ store, endpoints, policies, ports: publicPorts, log },
    isLeased: cluster && ((place) => cluster.rows.isLeased(place)),
  });
  await cloudEndpoints.settled();
  const agents = new AgentConnections(connectHost(domains.baseDomain));
  const services = new Map<string, RequestListener>();
  const serviceMessages = new ExpressMessages();
  const byLocalCa = acme?.ownNames === 'all' ? null : connectHost(domains.baseDomain);
  const domainCertificates = new DomainCertificates(store, byLocalCa, log);
  const relays = createRelays(start, { edgeIndex, domainCertificates, services, tlsPorts: () => edge.tlsPorts });
  const edge = createEdge(start, {
    policies,
    restricted,
    edgeIndex,
    domainCertificates,
    agents,
    services,
    serviceMessages,
    relays,
  });
  const ports = await edge.start();
  onStop(() => edge.stop());
  Object.assign(publicPorts, { http: ports.httpPort, https: ports.httpsPort });
  if (cluster) onStop(() => cluster.stop());
  const addresses: AddressSettings = {
    baseDomain: domains.baseDomain,
    ports: publicPorts,
    tcpHost: tcpHost(domains.baseDomain),
  };
  const { sessions, sessionPort } = await startSessions(
    options,
    { ...start, policies, restricted, addresses, relays, cloudEndpoints },
    onStop,
  );
  agents.open(sessions);
  noteSessions(activity, sessions);
  noteEndpoints(activity, endpoints);
  noteRefused(activity, counters);
  const renewal = await startCertificateRenewal({ acme, challengeDns }, { ...start, activity, dataDir }, onStop);
  startEventDelivery(start);
  const sightings = new DeviceSightings(store, log, cluster && ((id) => cluster.hasSession(id)));
  await sightings.start(sessions);
  onStop(() => sightings.stop());
  const place = placeOf(start, ports.httpsPort, sessionPort);
  const here = new LiveAgents(
    sessions,
    endpoints,
    (remoteAddress) => restricted.refuses('agent', { remoteAddress }),
    log,
  );
  const live = withStored(cluster?.start(here, sessions) ?? here, () => [
    ...edgeEndpoints(edgeIndex),
    ...cloudEndpoints.views(),
  ]);
  let metrics: Promise<GatewayMetrics> | null = null;
  const metricsHere = async () => {
    metrics ??= import('./api/gateway-metrics.ts').then(
      (module) => new module.GatewayMetrics({ store, live: here, counters }),
    );
    return (await metrics).registry.metrics();
  };
  if (relays)
    relays.accept.answer = async (question) => {
      if (question === 'metrics') return metricsHere();
      return JSON.stringify(countedBy(counters.totals, [...here.endpoints(), ...cloudEndpoints.views()]));
    };
  const dnsServers = acme?.resolvers ?? null;
  const signInCodes = new OneTimeCodes();
  const wakeCertificateRenewal = renewal.wake;
  const apiUrl = options.apiUrl ?? apiUrlOf(domains, ports.httpsPort);
  const settings = { ...options.limits, baseUrl: apiUrl, version: VERSION, domains };
  const parts = {
    store,
    live,
    sightings,
    counters,
    ipPolicies,
    addresses,
    tcpPorts: options.tcpPorts ?? null,
    cloudEndpoints,
    place,
    dnsServers,
    signInCodes,
    activity,
    isRefused: restricted.refuses.bind(restricted),
    wakeCertificateRenewal,
    ...(cluster && relays && { metricsOf: (address: string) => cluster.metricsOf(address, relays, metricsHere) }),
  };
  const loadApi = () => managementApi({ ...parts, log }, settings, serviceMessages);
  services.set(apiHost(domains.baseDomain), lazyListener(loadApi, log));
  const loadSignInPage = async () => {
    const { createSignInPage } = await import('./sign-in/page/sign-in-page.ts');
    return createSignInPage({ store, people, isRefused: restricted.refusesClient, log });
  };
  services.set(signInHost(domains.baseDomain), lazyListener(loadSignInPage, log));
  return {
    sessionAddress: place.sessionAddress,
    ...ports,
    sessionPort,
    dnsPort: renewal.dnsPort,
    apiUrl,
    endpoints,
    sessions,
    issueAuthtoken: () => issueEmbeddedAuthtoken(store),
  };
}

function createPolicies(
  { options, store, ipPolicies, addresses, log }: Start,
  people: PeopleProvider,
  activity: Activity,
): EndpointPolicies {
  const {
    policyNetworks: allowed,
    fetchForPolicies: fetch = (url, maxBytes) => fetchDocument(url, maxBytes, allowed),
    requestForSignIn: ask = (url, maxBytes, request) => requestPublic(url, maxBytes, request, allowed),
  } = options;
  return new EndpointPolicies({
    ipPolicies,
    hasCertificateAuthority: (id) => store.certificateAuthorities.get(id) !== null,
    secret: policySecrets(store),
    fetch,
    request: (outbound, signal) => publicRequest(outbound, signal, allowed),
    signIn: createSignIn(
      {
        ...store,
        people,
        begin: recordSignIns(store),
        signOut: (id) => signOut(store, id, log),
        ownerOf: (payer) => ownerOf(payer, store) ?? '',
        onEnd: signInNotes(activity),
      },
      ask,
    ),
    shareLinks: createShareLinks(store, log),
    share: options.agentLimits?.policyShare,
    ...(addresses && { findAddress: (address: string) => addresses.find(address) }),
    replacements: new ReplacementThread(PACKAGED_REPLACER),
    log,
  });
}

/** How long an idle connection to a receiver of events is kept: shorter than servers keep theirs. */
const EVENT_IDLE_MS = 4_000;

/** Of several gateways, one sends events. What a copy of the database has sent, it would forget. */
function startEventDelivery({ options, store, cluster, log, onStop }: Start): void {
  if (store.database.unwritable !== null) return;
  // A handshake for each event would take most of its time.
  const agent = new Agent({ keepAlive: true, timeout: EVENT_IDLE_MS });
  const request: typeof publicRequest = (outbound, signal) =>
    publicRequest(outbound, signal, options.policyNetworks, agent);
  const resolve: typeof publicAddress = (host) => publicAddress(host, options.policyNetworks);
  const folder = join(options.dataDir, 'gateway', 'events');
  const delivery = new EventDelivery({ store, folder, request, resolve, clock: systemClock, log });
  const start = () => {
    delivery.start();
    return async () => {
      await delivery.stop();
      agent.destroy();
    };
  };
  if (cluster === null) onStop(start());
  else cluster.primary.whileSelf(start);
}

interface EdgeParts extends Pick<EdgeServerOptions, 'agents' | 'services' | 'serviceMessages' | 'relays'> {
  policies: EndpointPolicies;
  restricted: RestrictedAddresses;
  edgeIndex: TlsEdgeIndex;
  domainCertificates: DomainCertificates;
}

interface RelayParts extends Pick<EdgeParts, 'edgeIndex' | 'domainCertificates'> {
  services: ReadonlyMap<string, RequestListener>;
  /** All numbers of the public TLS port, once it is open. */
  tlsPorts: () => readonly number[];
}

/** @returns null when this gateway is the only one */
function createRelays(
  { ca, store, domains, cluster }: Start,
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

function createEdge(
  { options, ca, store, domains, shares, balancers, endpoints, cluster, counters, challenges, log }: Start,
  { policies, restricted, edgeIndex, domainCertificates, ...services }: EdgeParts,
): EdgeServer {
  const { host, httpPort, httpsPort, edgeLimits } = options;
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
    ...edgeServerLimits(edgeLimits, shares),
    balancers,
    counters,
    log,
  });
}

/** What an edge selects tunnels by; null: it needs none. */
function labelsOf({ backend }: TlsEdgeRow, { tunnelGroupBackends }: Store): Labels | null {
  return backend?.enabled ? (tunnelGroupBackends.get(backend.backend_id)?.labels ?? null) : null;
}

function apiUrlOf({ baseDomain }: DomainSettings, port: number): string {
  return urlOf({ protocol: 'https', host: apiHost(baseDomain), port });
}

function placeOf({ options, ca, domains }: Start, httpsPort: number, sessionPort: number | null): GatewayPlace {
  const { host, apiUrl = null, acme } = options;
  const { baseDomain } = domains;
  return {
    ...joinOrigin(apiUrl, baseDomain, httpsPort),
    signInOrigin: signInOrigin(apiUrl, baseDomain, httpsPort),
    sessionAddress: sessionAddress({ host, baseDomain, sessionPort, httpsPort }),
    tcpHost: tcpHost(baseDomain),
    caPem: ca.caPem,
    publicNames: acme?.ownNames ?? 'none',
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

async function managementApi(
  parts: ManagementApiDependencies,
  settings: Pick<ManagementApiSettings, 'baseUrl' | 'version' | 'domains'> & GatewayOptions['limits'],
  messages: ExpressMessages,
) {
  const { createManagementApi, DEFAULT_LIMITS } = await import('./api/management-api.ts');
  const app = createManagementApi(parts, { ...DEFAULT_LIMITS, ...settings });
  messages.adopt(app);
  return app;
}
