import { hostname } from 'node:os';
import { join } from 'node:path';
import { CleanupStack } from '../lib/cleanup-stack.ts';
import { LoadBalancers } from '../lib/network/load-balancers.ts';
import { descriptorLimit } from '../lib/process/process-metrics.ts';
import { VERSION } from '../packaged.ts';
import { ipPolicyRules, RestrictedAddresses } from './access/ip-rules.ts';
import { HttpChallenges, TlsAlpnChallenges, TxtChallenges } from './certificates/challenges/challenges.ts';
import { openLocalCa } from './certificates/local-ca/local-ca.ts';
import { openSharedCa } from './certificates/local-ca/shared-ca.ts';
import { startCertificateRenewal } from './certificates/start-certificate-renewal.ts';
import { OnlineCloudEndpoints } from './cloud-endpoints/online-cloud-endpoints.ts';
import { Cluster } from './cluster/cluster.ts';
import { LossReports } from './cluster/loss-reports.ts';
import { PERIODS } from './cluster/nodes.ts';
import { createPolicies, policyKnowledge } from './create-policies.ts';
import { descriptorShares } from './descriptor-shares.ts';
import { DeviceSightings } from './devices/device-sightings.ts';
import { type GatewayPlace, joinOrigin, signInOrigin } from './devices/gateway-place.ts';
import { AddressDatabases } from './endpoints/address-databases.ts';
import { gatewayDomains, sessionAddress, signInHost, tcpHost } from './endpoints/domain-names.ts';
import { EndpointRegistry } from './endpoints/endpoint-registry.ts';
import { OnlineAddressesFile } from './endpoints/online-addresses-file.ts';
import { withEqualSettings } from './equal-settings.ts';
import { ActivityLog, noteEndpoints, noteRefused, noteSessions } from './events/activity-log.ts';
import { finishClients } from './finish-clients.ts';
import type { GatewayOptions, GatewayStart } from './gateway-options.ts';
import { EdgeCounters } from './metrics/edge-counters.ts';
import { watchProcess } from './metrics/process-watch.ts';
import { serveOwnServices } from './serve-own-services.ts';
import type { SessionServer } from './sessions/session-server.ts';
import { PeopleProvider } from './sign-in/people-provider.ts';
import { startDailyBackups } from './start-daily-backups.ts';
import { startEdge } from './start-edge.ts';
import { startEventDelivery } from './start-event-delivery.ts';
import { startSessions } from './start-sessions.ts';
import { checkCompanionFiles, openForChanges } from './store/open-gateway-store.ts';
import { keepSmall } from './store/sql/free-space.ts';
import type { Store } from './store/store.ts';
import { issueEmbeddedAuthtoken } from './store/tokens.ts';

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

/** @throws {OperatorError} when its data folder cannot be used; the system's error when it cannot listen on a port */
export async function startGateway(given: GatewayOptions): Promise<Gateway> {
  let options = given;
  const { dataDir, encryptionKey = null, databaseUrl = null, nodeAddress = null } = options;
  const folder = join(dataDir, 'gateway');
  const localCa = databaseUrl === null ? await openLocalCa(folder, options.log) : null;
  const { store, shared, close } = await openForChanges(
    { ...options, encryptionKey, databaseUrl },
    { older: 'upgrade', onCopyUnusable: (reason) => options.onRemoved?.(reason), log: options.log },
  );
  const reason = store.database.temporary?.message;
  if (reason !== undefined && shared !== null)
    options.log.warn({ reason }, 'disk is read-only or full: copy of the shared database kept in memory');
  else if (reason !== undefined)
    options.log.warn({ reason }, 'disk is read-only or full: existing accounts keep working, changes are rejected');
  const cleanup = new CleanupStack(options.log);
  cleanup.add(close);
  try {
    const ca = localCa ?? (await openSharedCa(folder, store, options.log));
    await checkCompanionFiles(store, ca, options.log);
    const endpoints = new EndpointRegistry();
    const { periods = PERIODS, log } = options;
    const cluster =
      shared && nodeAddress !== null ? new Cluster({ store, shared, endpoints, periods, folder, log }) : null;
    const nodes = cluster?.nodes ?? null;
    const losses = shared && new LossReports({ store, shared, nodes, periods, log });
    if (losses) cluster?.primary.whileSelf(() => losses.watch());
    await shared?.serve(
      { address: nodeAddress ?? hostname(), alone: cluster === null, build: VERSION },
      {
        onRemoved: options.onRemoved ?? (() => {}),
        ...(losses && { onLoss: (loss) => losses.report(loss) }),
        ...(cluster && { onNodes: (...nodes) => cluster.update(...nodes) }),
      },
      periods.renewMs,
    );
    options = await withEqualSettings(options, store, { othersServe: () => cluster?.nodes.othersServe ?? false, log });
    const { geo = null, asn = null } = options.addressDatabases ?? {};
    const addressDatabases = geo || asn ? await AddressDatabases.open({ geo, asn }, log) : null;
    cleanup.add(async () => addressDatabases?.close());
    const domains = gatewayDomains(options.domain.toLowerCase());
    const { baseDomain } = domains;
    const ports = { http: options.httpPort, https: options.httpsPort };
    const parts = await startParts({
      options,
      ca,
      store,
      domains,
      addresses: { baseDomain, ports, tcpHost: tcpHost(baseDomain) },
      shares: descriptorShares(descriptorLimit()),
      balancers: options.balancers?.length ? new LoadBalancers(options.balancers, log) : null,
      endpoints,
      cluster,
      losses,
      counters: new EdgeCounters(),
      shared,
      challenges: {
        http: new HttpChallenges(),
        tlsAlpn: new TlsAlpnChallenges(),
        txt: new TxtChallenges(cluster ? (...values) => cluster.publishChallenges(...values) : undefined),
      },
      ipPolicies: ipPolicyRules(store),
      policyKnowledge: policyKnowledge(store, { geo, asn }),
      addressDatabases,
      log,
      onStop: (stop) => cleanup.add(stop),
    });
    return { ...parts, store, sessionCa: ca.caPem, caFile: ca.caFile, close: () => cleanup.run() };
  } catch (error) {
    // The operator needs the error that prevented the start; cleanup errors are in the log.
    await cleanup.run().catch(() => {});
    throw error;
  }
}

/** Each part needs those above it. They stop in the reverse order. */
async function startParts(start: GatewayStart) {
  const { options, store, domains, endpoints, counters, cluster, log, onStop } = start;
  const stopWatching = watchProcess(counters, log);
  onStop(async () => stopWatching());
  const activity = new ActivityLog(store, log);
  // After the sessions, whose end is an event, too.
  onStop(() => activity.stop());
  const people = new PeopleProvider(store, signInHost(domains.baseDomain));
  const policies = createPolicies(start, people, activity);
  const restricted = new RestrictedAddresses(store, start.ipPolicies);
  const { ports } = start.addresses;
  const isLeased = cluster && ((place: string) => cluster.rows.isLeased(place));
  const cloudEndpoints = new OnlineCloudEndpoints({ store, endpoints, policies, ports, isLeased, log });
  await cloudEndpoints.settled();
  const addresses = new OnlineAddressesFile(join(options.dataDir, 'gateway', 'online-addresses.jsonl'), endpoints, log);
  await addresses.start();
  // After the sessions, whose end is what the next gateway has to know of.
  onStop(() => addresses.stop());
  const edge = await startEdge(start, { policies, restricted });
  if (cluster) onStop(() => cluster.stop());
  const { sessions, sessionPort, tcpListeners } = await startSessions(start, {
    ...edge,
    policies,
    restricted,
    cloudEndpoints,
  });
  edge.agents.open(sessions);
  addresses.expectAll();
  noteSessions(activity, sessions);
  noteEndpoints(activity, endpoints);
  noteRefused(activity, counters);
  const { dataDir } = options;
  const { dnsPort, wake: wakeCertificateRenewal } = await startCertificateRenewal(options, {
    ...start,
    activity,
    dataDir,
  });
  startEventDelivery(start);
  await startDailyBackups(start);
  const stopShrinking = keepSmall(store.database);
  onStop(async () => stopShrinking());
  const sightings = new DeviceSightings(store, log, cluster && ((id) => cluster.hasSession(id)));
  await sightings.start(sessions);
  onStop(() => sightings.stop());
  const place = placeOf(start, sessionPort);
  const shown = { people, activity, restricted, cloudEndpoints, sessions, sightings, place };
  const apiUrl = serveOwnServices(start, edge, { ...shown, wakeCertificateRenewal });
  const { httpPort, httpsPort } = edge;
  return {
    ...{ httpPort, httpsPort, sessionPort, dnsPort, apiUrl, endpoints, sessions, counters },
    sessionAddress: place.sessionAddress,
    finish: () => finishClients(edge.clients, tcpListeners, sessions),
    issueAuthtoken: () => issueEmbeddedAuthtoken(store),
  };
}

function placeOf({ options, ca, domains, addresses }: GatewayStart, sessionPort: number | null): GatewayPlace {
  const { host, apiUrl = null, acme } = options;
  const { baseDomain } = domains;
  const httpsPort = addresses.ports.https;
  return {
    ...joinOrigin(apiUrl, baseDomain, httpsPort),
    signInOrigin: signInOrigin(apiUrl, baseDomain, httpsPort),
    sessionAddress: sessionAddress({ host, baseDomain, sessionPort, httpsPort }),
    tcpHost: addresses.tcpHost,
    caPem: ca.caPem,
    publicNames: acme?.ownNames ?? 'none',
  };
}
