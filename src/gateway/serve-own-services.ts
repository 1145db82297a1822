import type { RequestListener } from 'node:http';
import { OneTimeCodes } from '../lib/http/one-time-code.ts';
import { withDeadline } from '../lib/time/deadline.ts';
import { VERSION } from '../packaged.ts';
import type { Person } from '../traffic-policy/sign-in/identity-provider.ts';
import type { RestrictedAddresses } from './access/ip-rules.ts';
import type { GatewayMetrics } from './api/gateway-metrics.ts';
import type { ManagementApiDependencies } from './api/management-api.ts';
import type { OnlineCloudEndpoints } from './cloud-endpoints/online-cloud-endpoints.ts';
import type { Condition } from './conditions/conditions.ts';
import type { DeviceSightings } from './devices/device-sightings.ts';
import type { GatewayPlace } from './devices/gateway-place.ts';
import { lazyListener } from './edge/service-server.ts';
import { admitting, applicationsOf } from './endpoints/applications.ts';
import { apiHost, signInHost } from './endpoints/domain-names.ts';
import { urlOf } from './endpoints/endpoint-address.ts';
import { countedBy, type GatewayReport, withStored } from './endpoints/live-view.ts';
import { type ActivityLog, dashboardNotes } from './events/activity-log.ts';
import type { GatewayStart } from './gateway-options.ts';
import { LiveAgents } from './sessions/live-agents.ts';
import type { SessionServer } from './sessions/session-server.ts';
import type { PeopleProvider } from './sign-in/people-provider.ts';
import type { Edge } from './start-edge.ts';
import { edgeEndpoints } from './tls-edges/prepared-edge.ts';

/** Less than other gateways wait for the answer. */
const CONDITIONS_MS = 500;

interface ServiceParts {
  people: PeopleProvider;
  activity: ActivityLog;
  restricted: RestrictedAddresses;
  cloudEndpoints: OnlineCloudEndpoints;
  sessions: SessionServer;
  sightings: DeviceSightings;
  place: GatewayPlace;
  /** Called when a domain may need a certificate, or no longer needs one. */
  wakeCertificateRenewal: () => void;
}

/**
 * Serves the management API, the sign-in page and what other gateways ask. Their code is loaded with the first request: most
 * gateways inside an agent never get one. @returns the origin of the management API
 */
export function serveOwnServices(start: GatewayStart, edge: Edge, parts: ServiceParts): string {
  const { options, store, domains, addresses, ipPolicies, policyKnowledge, endpoints, shared, cluster, counters, log } =
    start;
  const { people, restricted, cloudEndpoints, sessions, ...others } = parts;
  const { relays, services, serviceMessages, edgeIndex } = edge;
  const host = apiHost(domains.baseDomain);
  const baseUrl = options.apiUrl ?? urlOf({ protocol: 'https', host, port: addresses.ports.https });
  const refusesAgent = (remoteAddress: string) => restricted.refuses('agent', { remoteAddress });
  const here = new LiveAgents(sessions, endpoints, refusesAgent, log);
  const stored = () => [...edgeEndpoints(edgeIndex), ...cloudEndpoints.views()];
  const live = withStored(cluster?.start(here, sessions) ?? here, stored);
  const { dataDir, backups = null } = options;
  const conditions = async (): Promise<readonly Condition[]> => {
    const { presentConditions } = await import('./conditions/conditions.ts');
    const { activity } = parts;
    const hasNoPrimary = () => cluster?.primary.isVacant === true;
    const database = { databaseAway: () => shared?.away ?? null, databaseDetour: () => shared?.detour ?? null };
    const more = { ...database, hasNoPrimary, hasDailyBackups: backups !== null };
    return presentConditions({ ...{ store, live, endpoints, counters, activity, dataDir }, ...more });
  };
  const metricsHere = lazyMetrics({ store, live: here, counters, conditions });
  if (relays) {
    const report = async (): Promise<GatewayReport> => {
      const counted = countedBy(counters.totals, [...here.endpoints(), ...cloudEndpoints.views()]);
      return { ...counted, ...(await conditionsSoon(conditions())) };
    };
    relays.accept.answer = async (question) =>
      question === 'metrics' ? metricsHere() : JSON.stringify(await report());
  }
  const dependencies: ManagementApiDependencies = {
    ...{ store, addresses, ipPolicies, policyKnowledge, counters, log },
    ...others,
    people,
    live,
    conditions,
    staleSeconds: () => shared?.staleSeconds ?? null,
    cloudEndpoints,
    tcpPorts: options.tcpPorts ?? null,
    dnsServers: options.acme?.resolvers ?? null,
    signInCodes: new OneTimeCodes(),
    isRefused: restricted.refuses.bind(restricted),
    ...(cluster && relays && { metricsOf: (address: string) => cluster.metricsOf(address, relays, metricsHere) }),
  };
  const serve = (name: string, load: () => Promise<RequestListener>) => services.set(name, lazyListener(load, log));
  serve(host, async () => {
    const { createManagementApi, DEFAULT_LIMITS } = await import('./api/management-api.ts');
    const settings = { ...DEFAULT_LIMITS, ...options.limits, baseUrl, version: VERSION, domains };
    const app = createManagementApi(dependencies, settings);
    serviceMessages.adopt(app);
    return app;
  });
  serve(signInHost(domains.baseDomain), async () => {
    const { createSignInPage } = await import('./sign-in/page/sign-in-page.ts');
    const applications = (person: Person, port: string) => applicationsOf(admitting(live.endpoints(), person), port);
    const listed = options.listApplications ? { applications } : {};
    const onRefused = dashboardNotes(parts.activity);
    return createSignInPage({ store, people, isRefused: restricted.refusesClient, ...listed, onRefused, log });
  });
  return baseUrl;
}

/** A disk that hangs must not keep the figures from other gateways, which would take this one for lost. */
function conditionsSoon(conditions: Promise<readonly Condition[]>): Promise<Pick<GatewayReport, 'conditions'>> {
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
