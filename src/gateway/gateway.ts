import { X509Certificate } from 'node:crypto';
import type { RequestListener } from 'node:http';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { CleanupStack } from '../lib/cleanup-stack.ts';
import { ExpressMessages } from '../lib/http/express-app.ts';
import { OneTimeCodes } from '../lib/http/one-time-code.ts';
import { urlHostOf } from '../lib/network/ip-address.ts';
import { LoadBalancers } from '../lib/network/load-balancers.ts';
import type { HandshakeParties } from '../lib/network/metered-connection.ts';
import { descriptorLimit } from '../lib/process/process-metrics.ts';
import { systemClock } from '../lib/time/clock.ts';
import { withDeadline } from '../lib/time/deadline.ts';
import { InspectingAgent } from '../lib/tls/client-handshake.ts';
import { SessionTickets } from '../lib/tls/session-tickets.ts';
import { PACKAGED_REPLACER, VERSION } from '../packaged.ts';
import type { EdgeLimits } from '../settings/gateway-settings.ts';
import { fetchDocument, requestPublic } from '../traffic-policy/fetch-document.ts';
import type { PolicyKnowledge } from '../traffic-policy/ports.ts';
import { publicAddress, publicRequest } from '../traffic-policy/public-request.ts';
import { ReplacementThreads } from '../traffic-policy/replacement-threads.ts';
import type { SignedInPerson } from '../traffic-policy/sign-in/identity-provider.ts';
import { AuthtokenAcl } from './access/authtoken-acl.ts';
import { AuthtokenAuthentication } from './access/authtoken-authentication.ts';
import { addressRules, RestrictedAddresses } from './access/ip-rules.ts';
import { policySecrets } from './access/policy-secrets.ts';
import type { GatewayMetrics } from './api/gateway-metrics.ts';
import { probeAt } from './api/shown-probes.ts';
import { HttpChallenges, TlsAlpnChallenges, TxtChallenges } from './certificates/challenges/challenges.ts';
import { DomainCertificates } from './certificates/domain-certificates.ts';
import { endedCas, knownCertificates, nextCa } from './certificates/local-ca/ca-rotation.ts';
import { GatewayCa } from './certificates/local-ca/followed-ca.ts';
import { startCertificateRenewal } from './certificates/start-certificate-renewal.ts';
import { TimeProofs } from './certificates/time-proofs.ts';
import { OnlineCloudEndpoints } from './cloud-endpoints/online-cloud-endpoints.ts';
import { Cluster } from './cluster/cluster.ts';
import { LossReports } from './cluster/loss-reports.ts';
import { PERIODS } from './cluster/nodes.ts';
import type { Condition } from './conditions/conditions.ts';
import { type DescriptorShares, descriptorShares } from './context/descriptor-shares.ts';
import type { GatewayContext } from './context/gateway-context.ts';
import type { GatewayOptions } from './context/gateway-options.ts';
import { BulkActionJob } from './devices/bulk-action-job.ts';
import { DeviceSightings } from './devices/device-sightings.ts';
import type { GatewayPlace } from './devices/invite.ts';
import { SiteNameGrants } from './devices/site-name-grants.ts';
import { internalLookup } from './edge/connections/connect-phase.ts';
import { EdgeServer } from './edge/edge-server.ts';
import { HTTP_LIMITS } from './edge/http/http-limits.ts';
import type { Relays } from './edge/relays/relays.ts';
import { lazyListener } from './edge/service-server.ts';
import { TcpListeners } from './edge/streams/tcp-listeners.ts';
import { AgentConnections } from './edge/tls/agent-connections.ts';
import { TLS_LIMITS } from './edge/tls-mux.ts';
import { AddressDatabases } from './endpoints/address-databases.ts';
import { admitting, applicationsOf } from './endpoints/applications.ts';
import {
  apiHost,
  apiOrigin,
  connectHost,
  gatewayDomains,
  joinOrigin,
  otherSessionAddresses,
  ownDomainOf,
  sessionAddress,
  signInHost,
  signInOrigin,
  tcpHost,
} from './endpoints/domain-names.ts';
import { EndpointPolicies } from './endpoints/endpoint-policies.ts';
import { EndpointRegistry } from './endpoints/endpoint-registry.ts';
import { countedBy, type GatewayReport, type ReportedCondition } from './endpoints/live-view.ts';
import { OnlineAddressesFile } from './endpoints/online-addresses-file.ts';
import type { Labels } from './endpoints/online-endpoint.ts';
import { PortNames } from './endpoints/port-names.ts';
import { ProbeTokens } from './endpoints/probe-outcome.ts';
import { withStored } from './endpoints/stored-endpoints.ts';
import { TcpPortAllocator } from './endpoints/tcp-port-allocator.ts';
import { withEqualSettings } from './equal-settings.ts';
import { ActivityLog, noteEndpoints, noteSessions, noteSignIn } from './events/activity-log.ts';
import { EventDelivery } from './events/event-delivery.ts';
import { PolicyWatch } from './events/policy-watch.ts';
import { finishClients } from './finish-clients.ts';
import { startMessages } from './messages/start-messages.ts';
import { EdgeCounters } from './metrics/edge-counters.ts';
import { watchProcess } from './metrics/process-watch.ts';
import { FleetUpdates } from './releases/fleet-updates.ts';
import { EndpointBinder } from './sessions/endpoint-binder.ts';
import { LiveAgents } from './sessions/live-agents.ts';
import { MAX_UNAUTHENTICATED, SessionServer } from './sessions/session-server.ts';
import { createShareLinks, ownerOf } from './share-links/share-links.ts';
import { createSignIn } from './sign-in/create-sign-in.ts';
import { PeopleProvider } from './sign-in/people-provider.ts';
import { recordSignIns, signOut } from './sign-in/recorded-sign-ins.ts';
import { type StatusSources, statusPages } from './status-pages/status-page.ts';
import { formerDomains } from './store/former-domains.ts';
import { noteBackup } from './store/last-backup.ts';
import { checkAuthority, openForChanges } from './store/open-gateway-store.ts';
import { keepSmall } from './store/sql/free-space.ts';
import type { Store } from './store/store.ts';
import { checkStoredSecrets } from './store/stored-secrets.ts';
import type { TlsEdgeRow } from './store/tls-edges.ts';
import { issueEmbeddedAuthtoken } from './store/tokens.ts';
import { edgeEndpoints } from './tls-edges/prepared-edge.ts';
import { TlsEdgeIndex, TlsEdges } from './tls-edges/tls-edges.ts';

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
  readonly counters: EdgeCounters;
  readonly store: Store;
  /** Issues the authtoken for an agent in this process; it replaces the previous one. */
  issueAuthtoken(): Promise<string>;
  /** Lets clients finish what they have under way, see {@link finishClients}; `close` comes next. */
  finish(): Promise<void>;
  /** Stops everything and closes all clients' connections and sessions. */
  close(): Promise<void>;
}

/** How long an idle connection to a receiver of events is kept: shorter than servers keep theirs. */
const EVENT_IDLE_MS = 4_000;
/** As documented. */
const LATENCY_LIMIT_MS = 5_000;
/** Less than other gateways wait for the answer. */
const CONDITIONS_MS = 500;

/** @throws {OperatorError} when its data folder cannot be used; the system's error when it cannot listen on a port */
export async function startGateway(options: GatewayOptions): Promise<Gateway> {
  const cleanup = new CleanupStack(options.log);
  try {
    const gateway = await startParts(options, (stop) => cleanup.add(stop));
    return { ...gateway, close: () => cleanup.run() };
  } catch (error) {
    // The operator needs the error that prevented the start; cleanup errors are in the log.
    await cleanup.run().catch(() => {});
    throw error;
  }
}

/** Each part needs those above it. They stop in the reverse order. */
async function startParts(given: GatewayOptions, onStop: GatewayContext['onStop']): Promise<Omit<Gateway, 'close'>> {
  const { dataDir, encryptionKey = null, databaseUrl = null, nodeAddress = null, log } = given;
  const folder = join(dataDir, 'gateway');

  // The store comes first: with several gateways, it has the CA and some of the settings; with one, what becomes of the CA.
  const { store, shared, close } = await openForChanges(
    { ...given, encryptionKey, databaseUrl },
    { older: 'upgrade', onCopyUnusable: (reason) => given.onRemoved?.(reason), log },
  );
  onStop(close);
  const { database } = store;
  const reason = database.temporary?.message;
  if (reason !== undefined && shared !== null)
    log.warn({ reason }, 'disk is read-only or full: copy of the shared database kept in memory');
  else if (reason !== undefined)
    log.warn({ reason }, 'disk is read-only or full: existing accounts keep working, changes are rejected');
  const ca = await GatewayCa.open(folder, store, log);
  await checkAuthority(store, ca, log);
  const unreadable = await checkStoredSecrets(store, log);

  // The other gateways: before the settings, as one that starts alone decides about those that have to be equal. Losses of the
  // shared database may be reported from `serve` on, with what destinations of events have got.
  const endpoints = new EndpointRegistry((host) => portNames?.boundAs(host, domains) ?? host);
  const cluster =
    shared && nodeAddress !== null ? new Cluster({ options: given, store, endpoints, log }, shared) : null;
  // A handshake for each event would take most of its time.
  const isSender = (): boolean => (cluster?.primary.isSelf ?? true) && losses?.isOpen !== true;
  const eventAgent = new InspectingAgent({ owner: 'events' }, { keepAlive: true, timeout: EVENT_IDLE_MS });
  const delivery = new EventDelivery(
    { store, clock: systemClock, log },
    {
      folder: join(folder, 'events'),
      request: (outbound, signal) => publicRequest(outbound, signal, given.policyNetworks, eventAgent),
      resolve: (host) => publicAddress(host, given.policyNetworks),
      isSender: () => isSender(),
    },
  );
  const acknowledged = () => delivery.acknowledged;
  const nodes = cluster?.nodes ?? null;
  const losses = shared && new LossReports({ options: given, store, log }, { shared, nodes, acknowledged });
  if (losses) cluster?.primary.whileSelf(() => losses.watch());
  await shared?.serve(
    { address: nodeAddress ?? hostname(), alone: cluster === null, build: VERSION },
    {
      onRemoved: given.onRemoved ?? (() => {}),
      ...(losses && { onLoss: (loss) => losses.report(loss) }),
      ...(cluster && { onNodes: (...of) => cluster.update(...of) }),
    },
    (given.periods ?? PERIODS).renewMs,
  );
  const othersServe = () => cluster?.nodes.othersServe ?? false;
  const options = await withEqualSettings(given, store, { othersServe, log });
  // Before anybody waits: loading takes a sixth of a second. An embedded gateway spares its device what nobody asks for.
  if (options.recordsPolicies !== false) await import('./api/management-api.ts');

  // What all parts from here on share. The counters leave out what another gateway has passed on and counts itself.
  const { ip = null, httpsPorts = null } = options;
  const domains = gatewayDomains(options.domain.toLowerCase(), ip, httpsPorts);
  const { baseDomain } = domains;
  const connect = connectHost(baseDomain);
  const counters = new EdgeCounters((connection) => relays?.isLast(connection) === true);
  const activity = new ActivityLog(store, log);
  const ports = { http: options.httpPort, https: options.httpsPort };
  const portNames = ip === null ? null : new PortNames(ip, { names: store.namePorts, range: httpsPorts, log });
  const context: GatewayContext = {
    ...{ options, store, domains, endpoints, counters, activity, clock: systemClock, log, onStop },
    catchUp: async () => cluster?.catchUp(),
    addresses: { baseDomain, ports, tcpHost: tcpHost(baseDomain, ip), ...(portNames && { byPort: portNames }) },
    shares: descriptorShares(descriptorLimit(), {
      connections: options.edgeLimits?.connections ?? HTTP_LIMITS.connections,
      hellos: TLS_LIMITS.hellos,
      unauthenticated: MAX_UNAUTHENTICATED,
    }),
    balancers: options.balancers?.length ? new LoadBalancers(options.balancers, log) : null,
  };
  const { addresses, shares } = context;
  onStop(watchProcess(counters, log));
  // After the sessions, whose end is an event, too.
  onStop(() => activity.stop());

  // Policies: everything that has clients needs them.
  const { geo = null, asn = null } = options.addressDatabases ?? {};
  const addressDatabases = geo || asn ? await AddressDatabases.open({ geo, asn }, log) : null;
  onStop(() => addressDatabases?.close());
  const ipPolicies = addressRules(store);
  const policyKnowledge: PolicyKnowledge = {
    hasPerson: (email) => store.people.byEmail(email) !== null,
    hasMembers: (group) => store.people.count('EXISTS (SELECT 1 FROM json_each(groups) WHERE value = ?)', [group]) > 0,
    databases: { geo: geo !== null, as: asn !== null },
  };
  const people = new PeopleProvider(store, signInHost(baseDomain));
  const { policyNetworks: allowed } = options;
  const signIn = createSignIn(
    {
      ...store,
      people,
      begin: recordSignIns(store),
      signOut: (id) => signOut(store, id, log),
      ownerOf: (payer) => ownerOf(payer, store) ?? '',
      onEnd: (end) => noteSignIn(activity, end),
    },
    options.requestForSignIn ?? ((url, maxBytes, request) => requestPublic(url, maxBytes, request, allowed)),
  );
  const fetchAllowed = (url: string, maxBytes: number, parties?: HandshakeParties) =>
    fetchDocument(url, maxBytes, allowed, parties);
  let statusSources: StatusSources | null = null;
  const policies = new EndpointPolicies({
    ipPolicies,
    knowledge: policyKnowledge,
    hasCertificateAuthority: (id) => store.certificateAuthorities.get(id) !== null,
    secret: policySecrets(store),
    fetch: options.fetchForPolicies ?? fetchAllowed,
    request: (outbound, signal) => publicRequest(outbound, signal, allowed),
    signIn,
    shareLinks: createShareLinks(store, log),
    statusPage: statusPages(systemClock, () => statusSources),
    share: options.agentLimits?.policyShare,
    ...(addressDatabases && { findAddress: (address: string) => addressDatabases.find(address) }),
    replacements: new ReplacementThreads(PACKAGED_REPLACER),
    log,
  });
  const restricted = new RestrictedAddresses(store, ipPolicies);
  const isRefused = restricted.refusesClient;
  const refusesAgent = (remoteAddress: string) => restricted.refuses('agent', { remoteAddress });

  // Cloud endpoints are online, and lost agents are expected, before the first client comes.
  const isLeased = cluster && ((place: string) => cluster.rows.isLeased(place));
  const cloudEndpoints = new OnlineCloudEndpoints(context, { policies, isLeased });
  await cloudEndpoints.settled();
  const onlineAddresses = new OnlineAddressesFile(join(folder, 'online-addresses.jsonl'), endpoints, log);
  await onlineAddresses.start();
  // After the sessions, whose end is what the next gateway has to know of.
  onStop(() => onlineAddresses.stop());

  // The edge opens the public ports. Connections of agents wait there for the sessions.
  const edgeIndex = new TlsEdgeIndex(store, log);
  const domainCertificates = new DomainCertificates(store, options.acme?.ownNames === 'all' ? null : connect, log);
  const challenges = {
    http: new HttpChallenges(),
    tlsAlpn: new TlsAlpnChallenges(),
    txt: new TxtChallenges(cluster ? (...values) => cluster.publishChallenges(...values) : undefined),
  };
  /** The gateway's own, by their names: they come last. */
  const services = new Map<string, RequestListener>();
  const serviceMessages = new ExpressMessages();
  const former = await formerDomains(database, baseDomain);
  const agents = new AgentConnections(connect, undefined, former.map(connectHost));
  const relays: Relays | null =
    cluster === null
      ? null
      : cluster.relays({
          edgeAt: (name) => {
            const served = edgeIndex.at(name, edge.tlsPorts);
            return served && { labels: labelsOf(served.row, store) };
          },
          isService: (name) => services.has(name),
          commonName: apiHost(baseDomain),
          authority: () => ca.trusted,
          isOurs: (host, certificate) => {
            const pair = domainCertificates.pairFor(host);
            return pair !== null && new X509Certificate(pair.cert).raw.equals(certificate.raw);
          },
        });
  const withLabels = (labels: Labels) => {
    const tunnel = cluster === null ? endpoints.withLabels(labels) : cluster.withLabels(labels);
    return tunnel && 'node' in tunnel ? undefined : tunnel;
  };
  const agentTickets = new SessionTickets(store.box);
  const isProbing = (options.probes ?? []).length > 0;
  // Another gateway may ask what is online here.
  const probeTokens = isProbing || cluster ? new ProbeTokens(() => store.box.keysFor(ProbeTokens.PURPOSE)) : null;
  const edge = new EdgeServer(context, {
    ...{ ca, domainCertificates, challenges, services, serviceMessages, agents, relays, isRefused, probeTokens },
    tlsEdges: (route) => new TlsEdges(context, { index: edgeIndex, policies, isRefused, withLabels, ...route }),
    domainOf: database.untilCommit(
      (name) => store.reservedDomains.covering(name)?.domain ?? ownDomainOf(name, domains),
    ),
    placeOf: (name) => portNames?.placeOf(name, domains),
    agentTickets,
    authorityPem: (id) => store.certificateAuthorities.get(id)?.ca_pem ?? null,
    ...edgeServerLimits(options.edgeLimits, shares),
  });
  await cluster?.catchUpFirst();
  const { httpPort, httpsPort } = await edge.start();
  onStop(() => edge.stop());
  Object.assign(addresses.ports, { http: httpPort, https: httpsPort });
  if (cluster) onStop(() => cluster.stop());

  // Ports of tcp endpoints, then agents, which may bind them at once.
  const tcpPorts = options.tcpPorts ?? null;
  const internal = internalLookup({ endpoints, relays });
  const hasPorts = tcpPorts !== null || (portNames?.range ?? null) !== null;
  const tcpListeners = hasPorts
    ? new TcpListeners(context, { internal, isRefused, relays, named: portNames, edge })
    : null;
  if (tcpListeners) {
    onStop(() => tcpListeners.stop());
    cluster?.openPorts(tcpListeners);
  }
  onStop(cloudEndpoints.openPorts(tcpPorts && tcpListeners));
  const kinds = tcpPorts && portNames?.range ? 2 : 1;
  const ofListeners = tcpListeners && {
    opener: tcpListeners,
    maxOpen: Math.ceil(shares.tcpPorts / kinds),
    log,
  };
  const allocator =
    ofListeners && tcpPorts && new TcpPortAllocator({ ...ofListeners, range: tcpPorts, memory: store.tcpPorts });
  if (ofListeners && portNames?.range)
    onStop(
      portNames.openPorts(
        new TcpPortAllocator({ ...ofListeners, kind: 'named', range: portNames.range, memory: store.namePorts }),
      ),
    );
  const acl = new AuthtokenAcl(store, domains, addresses.ports.https);
  const names = new SiteNameGrants(context, {
    isOnlineElsewhere: (host, credentialId) =>
      endpoints.atName(host).some(({ owner, isCloud }) => !isCloud && owner.credential.id !== credentialId) ||
      cluster?.isNameOfOther(host, credentialId) === true,
    refuseName: (host) => acl.refuseName(host),
  });
  const watch = options.recordsPolicies === false ? null : new PolicyWatch(store, log);
  if (watch) onStop(() => watch.stop());
  const leases = cluster?.leases ?? null;
  const sessionNames = [...new Set([connect, options.host, 'localhost', '127.0.0.1', '::1', ...(ip ? [ip] : [])])];
  const sessions = new SessionServer(context, {
    access: new AuthtokenAuthentication(context, acl, names, refusesAgent),
    binder: new EndpointBinder(context, { policies, tcpPorts: allocator, portNames, leases, watch }),
    issueCertificates: () =>
      Promise.all(ca.all.map(async (one) => ({ id: one.id, ...(await one.issue(sessionNames)) }))),
    tickets: agentTickets,
    leases,
    node: cluster?.sessionNode(connect) ?? null,
    relays,
  });
  const sessionPort = await sessions.start();
  onStop(() => sessions.stop());
  agents.open(sessions);
  const renewed = () =>
    sessions.renew().catch((err: unknown) => log.error({ err }, 'agent certificate not renewed; retrying in a minute'));
  if (sessionPort !== null) ca.on('changed', () => void renewed());
  // The agent around an embedded gateway trusts the CA of its start.
  if (options.recordsPolicies !== false) onStop(ca.watch());
  onlineAddresses.expectAll();
  await portNames?.expect(endpoints.lost);
  noteSessions(activity, sessions);
  noteEndpoints(activity, endpoints);

  // Work that nobody waits for. Of several gateways, one renews certificates and sends events.
  const { dnsPort, wake } = await startCertificateRenewal(context, { ca, challenges, cluster });
  const startDelivery = () => {
    delivery.start();
    return async () => {
      await delivery.stop();
      eventAgent.destroy();
    };
  };
  // What a copy of the database has sent, it would forget.
  if (database.unwritable === null && cluster === null) onStop(startDelivery());
  else if (database.unwritable === null) cluster?.primary.whileSelf(startDelivery);
  // Gateways inside agents have none.
  const historyCode = (options.historyDays ?? 0) > 0 ? await import('./history/start-history.ts') : null;
  const others = cluster && relays && shared && { ask: shared.postgres.ask, relays, cluster };
  const history =
    (await historyCode?.startHistory(context, { folder, node: nodeAddress ?? '', sessions, others })) ?? null;
  await startDailyBackups(context, folder);
  onStop(keepSmall(database));
  const sightings = new DeviceSightings(context, cluster && ((id) => cluster.hasSession(id)));
  await sightings.start(sessions);
  onStop(() => sightings.stop());

  // The gateway's own services, and what other gateways ask: from here on, all that they show is there. Their code is loaded with
  // the first request, as most gateways inside an agent never get one.
  const here = new LiveAgents(sessions, endpoints, refusesAgent, log);
  const stored = cloudEndpoints.storedWith(() => edgeEndpoints(edgeIndex.served()));
  const live = withStored(cluster?.start(here, sessions) ?? here, stored);
  const probeCode = isProbing ? await import('./probes/public-probes.ts') : null;
  const probes =
    (probeTokens &&
      probeCode?.startProbes(context, { live, tokens: probeTokens, trusted: () => ca.trusted, others })) ??
    null;
  const isUnreached = (url: string): boolean => {
    const probe = probeAt(probes ? { probes } : {}, url);
    return probe !== null && !probe.reached && probe.stage !== 'policy';
  };
  statusSources = { live, history, isUnreached, ports: addresses.ports, since: systemClock.now() };
  const fleetUpdates = new FleetUpdates({ ...context, live }, () => cluster?.primary.isSelf ?? true);
  onStop(() => fleetUpdates.stop());
  const conditions = async (): Promise<readonly Condition[]> => {
    const { presentConditions } = await import('./conditions/conditions.ts');
    const { offeredReleases } = await import('../update/release-mirror.ts');
    return presentConditions({
      ...{ store, live, endpoints, counters, activity, dataDir },
      databaseAway: () => shared?.away ?? null,
      databaseDetour: () => shared?.detour ?? null,
      hasNoPrimary: () => cluster?.primary.isVacant === true,
      hasDailyBackups: (options.backups ?? null) !== null,
      undecryptable: unreadable,
      nextCa: () => nextCa(database),
      ownCas: () => knownCertificates(database),
      latencyLimitMs: options.latencyLimitMs ?? LATENCY_LIMIT_MS,
      runs: VERSION,
      ...(probes && { unreached: () => probes.unreached() }),
      releases: () => offeredReleases(dataDir),
    });
  };
  const reported = async () => {
    const { reportedConditions } = await import('./conditions/conditions.ts');
    return reportedConditions(await conditions());
  };
  const metricsHere = lazyMetrics({ store, live: here, counters, conditions, probes });
  relays?.on('asked', (question, answer, details) => {
    const report = async (): Promise<GatewayReport> => {
      const counted = countedBy(counters.totals, [...here.endpoints(), ...cloudEndpoints.views()]);
      const { current, others } = store.box.keyIds;
      const known = { encryptionKeys: [current, ...others], cas: ca.all.map(({ id }) => id) };
      return { ...counted, ...known, ...(await conditionsSoon(reported())) };
    };
    if (question === 'history')
      answer(
        historyCode?.historyAnswer(history, details) ?? Promise.reject(new Error('this gateway keeps no history')),
      );
    else if (question === 'probes') answer(Promise.resolve(probes?.told(details) ?? '[]'));
    else answer(question === 'metrics' ? metricsHere() : report().then((counted) => JSON.stringify(counted)));
  });
  const agentPlace = { host: options.host, baseDomain, sessionPort, httpsPort, ip };
  const place: GatewayPlace = {
    ...joinOrigin(options.apiUrl ?? null, baseDomain, httpsPort, ip),
    signInOrigin: signInOrigin(options.apiUrl ?? null, baseDomain, httpsPort),
    sessionAddress: sessionAddress(agentPlace),
    sessionAddresses: otherSessionAddresses(agentPlace, former),
    tcpHost: addresses.tcpHost,
    get caPem() {
      return ca.caPem;
    },
    get nextCaPem() {
      return ca.next?.caPem ?? null;
    },
    get caBundle() {
      return ca.bundle;
    },
    publicNames: options.acme?.ownNames ?? 'none',
  };
  const times = new TimeProofs({
    ca,
    certificates: () => [connect, apiHost(baseDomain)].flatMap((name) => domainCertificates.pairFor(name)?.cert ?? []),
    ended: () => endedCas(database),
    root: options.acme?.root ?? null,
  });
  const apiUrl = apiOrigin(options.apiUrl ?? null, baseDomain, httpsPort, ip);
  // It takes none older than itself.
  const signInCodes = new OneTimeCodes();
  const messages = () => startMessages(context, { conditions, live, origin: new URL(apiUrl).origin, isSender });
  if (database.unwritable === null && cluster === null) onStop(messages());
  else if (database.unwritable === null) cluster?.primary.whileSelf(messages);
  const bulkActions = new BulkActionJob(context, { live, tcpHost: addresses.tcpHost });
  if (database.unwritable === null && cluster === null) onStop(bulkActions.start());
  else if (database.unwritable === null) cluster?.primary.whileSelf(() => bulkActions.start());
  const serve = (name: string, load: () => Promise<RequestListener>) => services.set(name, lazyListener(load, log));
  const loadApi = async () => {
    const { createManagementApi, DEFAULT_LIMITS } = await import('./api/management-api.ts');
    const app = createManagementApi(
      {
        ...context,
        ...{
          ipPolicies,
          policyKnowledge,
          people,
          live,
          history,
          probes,
          conditions,
          sightings,
          place,
          times,
          wakeBulkActions: () => bulkActions.wake(),
          cloudEndpoints,
          signInCodes,
          fleetUpdates,
          dataDir,
        },
        tcpPorts,
        dnsServers: options.acme?.resolvers ?? null,
        wakeCertificateRenewal: wake,
        testDestination: (destination) => delivery.test(destination, baseDomain),
        staleSeconds: () => shared?.staleSeconds ?? null,
        isRefused: restricted.refuses.bind(restricted),
        ...(cluster && relays && { metricsOf: (address: string) => cluster.metricsOf(address, relays, metricsHere) }),
      },
      { ...DEFAULT_LIMITS, ...options.limits, baseUrl: apiUrl, version: VERSION },
    );
    serviceMessages.adopt(app);
    return app;
  };
  serve(apiHost(baseDomain), loadApi);
  const api = services.get(apiHost(baseDomain));
  // Clients that connect to an address name no host in the handshake: it is in their requests.
  if (ip !== null && api) services.set(urlHostOf(ip), api);
  // Devices that were away when the domain changed know only that one.
  for (const domain of former) if (api) services.set(apiHost(domain), api);
  serve(signInHost(baseDomain), async () => {
    const { createSignInPage } = await import('./sign-in/page/sign-in-page.ts');
    const applications = (person: SignedInPerson, port: string) => applicationsOf(admitting(live.find, person), port);
    return createSignInPage(context, { people, isRefused, applications });
  });

  return {
    ...{ httpPort, httpsPort, sessionPort, dnsPort, apiUrl, endpoints, sessions, counters, store },
    sessionAddress: place.sessionAddress,
    sessionCa: ca.caPem,
    caFile: ca.caFile,
    finish: () => finishClients(edge, tcpListeners, sessions, relays),
    issueAuthtoken: () => issueEmbeddedAuthtoken(store),
  };
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

/** Makes a backup every day, if that is a setting. Each of several gateways makes its own: any of them may be lost. */
async function startDailyBackups({ options, store, log, onStop }: GatewayContext, folder: string): Promise<void> {
  const { backups: plan = null, domain, settings = '' } = options;
  if (plan === null) return;
  // Most gateways on small devices never need it.
  const { writeBackup } = await import('./backup/backup-file.ts');
  const { DailyBackups } = await import('./backup/daily-backups.ts');
  const { database, box } = store;
  const write = async (file: string) => {
    await writeBackup(file, { database, folder, domain, settings, box });
    // The backup is there all the same.
    await noteBackup(database).catch((err: unknown) => log.warn({ err }, 'backup not recorded in the database'));
  };
  const backups = new DailyBackups({ plan, write, log });
  backups.start();
  onStop(() => backups.stop());
}

/** A disk that hangs must not keep the figures from other gateways, which would take this one for lost. */
function conditionsSoon(conditions: Promise<readonly ReportedCondition[]>): Promise<Pick<GatewayReport, 'conditions'>> {
  return withDeadline(conditions, 'reading the conditions', CONDITIONS_MS).then(
    (present) => ({ conditions: present }),
    () => ({}),
  );
}

/** @returns the Prometheus text of this gateway */
function lazyMetrics(parts: ConstructorParameters<typeof GatewayMetrics>[0]): () => Promise<string> {
  let loading: Promise<GatewayMetrics> | null = null;
  return async () => {
    loading ??= import('./api/gateway-metrics.ts').then((module) => new module.GatewayMetrics(parts));
    return (await loading).registry.metrics();
  };
}
