import type { AccessWay, AdmittedPeople } from '../../traffic-policy/access.ts';
import type { Labels } from './online-endpoint.ts';
import type { EndpointTraffic } from './traffic-counts.ts';

/** What is online, as the management API shows and controls it. */
export interface LiveView {
  sessions(): readonly LiveSession[];
  tunnels(): readonly LiveTunnel[];
  endpoints(): readonly LiveEndpoint[];
  /** How many that are. */
  counts(): LiveCounts;
  /** The same, by what they are known by. */
  readonly find: LiveFinder;
  /** The gateways of a cluster; left out or empty: this one is the only one. */
  gateways?(): readonly LiveGateway[];
  /** Which gateways have an endpoint, by its URL, as far as others are concerned; left out: there are no others. */
  holders?(): ReadonlyMap<string, ReadonlySet<string>>;
  /** What other gateways have counted, as of a moment ago; left out: there are none. Asking is what keeps it current. */
  countedElsewhere?(): CountedElsewhere;
  /** The same, once all have answered or cannot soon. */
  askElsewhere?(): Promise<CountedElsewhere>;
  /** Tells the agent to restart, stop or update, or ends its session; false when the session is unknown. */
  command(sessionId: string, command: SessionCommand): boolean;
  /** Resolves when it has taken effect everywhere, or cannot soon. */
  revoke(revoked: Revocation): Promise<void>;
}

/** Finds some of what is online, or pages of it, without looking at all. */
export interface LiveFinder {
  session(id: string): LiveSession | null;
  sessionsOf(credentialId: string): readonly LiveSession[];
  /** Those whose devices say something of a data budget, at this gateway. */
  sessionsWithBudget(): Iterable<LiveSession>;
  /** Those with ids below one, the last id first; null: all. So for the others. Nothing may change meanwhile. */
  sessionsBelow(id: string | null): Iterable<LiveSession>;
  tunnel(id: string): LiveTunnel | null;
  tunnelsOf(sessionId: string): readonly LiveTunnel[];
  /** Labelled tunnels that have all of the labels. */
  tunnelsWith(labels: Labels): readonly LiveTunnel[];
  tunnelsBelow(id: string | null): Iterable<LiveTunnel>;
  endpoint(id: string): LiveEndpoint | null;
  endpointsOf(credentialId: string): readonly LiveEndpoint[];
  /** At an address, as `placeOf` says. */
  endpointsAt(place: string): readonly LiveEndpoint[];
  endpointsWithUrl(url: string): readonly LiveEndpoint[];
  /** Those at which people of the gateway may sign in. */
  endpointsWithPeople(): readonly LiveEndpoint[];
  endpointsBelow(id: string | null): Iterable<LiveEndpoint>;
}

/** How much is online. */
export interface LiveCounts {
  readonly sessions: number;
  /** By protocol. */
  readonly endpoints: ReadonlyMap<string, number>;
  readonly labelled: number;
}

/** `disconnect` is not sent: the session ends. */
export type SessionCommand = 'restart' | 'stop' | 'update' | 'disconnect';

/** A permission that agents no longer have. */
export interface Revocation {
  /** Ends sessions that these authtokens started. */
  credentialIds?: readonly string[];
  /** Ends endpoints whose name only this reservation covered; can be a wildcard; empty: it is not known which. */
  domain?: string;
  /** Ends endpoints that the changed rules of this authtoken no longer allow. */
  narrowedId?: string;
  /** Ends sessions from addresses that IP restrictions no longer allow. */
  addresses?: true;
}

/** One authenticated connection of an agent. */
export interface LiveSession {
  /** `ts_…` */
  id: string;
  agentVersion: string;
  credentialId: string | null;
  ip: string;
  os: string;
  /** RFC 3339, UTC, whole seconds; so are all times here. */
  startedAt: string;
  transport: string;
  metadata: string;
  /** How much of its data budget the device has used, in percent; left out: it says nothing of one. */
  budgetPercent?: number;
  /** It takes no further requests, and its agent is expected back; left out: it does. */
  isLeaving?: true;
}

export interface LiveTunnel {
  /** `tn_…`, with the KSUID of its endpoint. */
  id: string;
  sessionId: string;
  /** Null for labelled tunnels. */
  endpointId: string | null;
  publicUrl: string | null;
  proto: string | null;
  labels: Readonly<Record<string, string>> | null;
  startedAt: string;
  metadata: string;
  forwardsTo: string;
}

export interface LiveEndpoint {
  /** `ep_…` */
  id: string;
  type: 'ephemeral' | 'edge' | 'cloud';
  proto: string;
  /** Lower case. */
  host: string;
  port: number;
  url: string;
  createdAt: string;
  updatedAt: string;
  metadata: string;
  description: string;
  name: string;
  tunnelId: string | null;
  sessionId: string | null;
  /** Identifies the agent's process, also in its next session; left out: it does not say. */
  instance?: string;
  /** Above 0: of an additional session of the same agent, which binds its endpoints there too; left out: 0. */
  connectionNumber?: number;
  edgeId: string | null;
  credentialId: string | null;
  /** Bot user that owns the authtoken. */
  ownerId: string | null;
  upstreamUrl: string | null;
  poolingEnabled: boolean;
  /** Whether only the policies of other endpoints can reach it. */
  internal: boolean;
  /** Of cloud endpoints; those of agents are not shown. */
  trafficPolicy?: string;
  /** Whether its requests need a connection whose handshake named it; left out: no. */
  needsOwnConnection?: true;
  access?: readonly AccessWay[];
  /** Which people of the gateway may sign in; left out: it asks for none. */
  admission?: AdmittedPeople;
  /** Counts on. Null for TLS edges, whose traffic counts for the tunnels behind them. */
  traffic: Readonly<EndpointTraffic> | null;
}

/** Of one endpoint: requests, errors, bytes from clients, bytes to clients. */
export type EndpointFigures = readonly [requests: number, errors: number, received: number, sent: number];

/** Of one gateway since it started. */
export interface GatewayTotals {
  readonly connections: number;
  /** Responses to clients, and those with status 5xx among them. */
  readonly responses: number;
  readonly errors: number;
  readonly upstreamFailures: number;
  readonly refusedByPolicy: number;
}

export interface CountedTraffic {
  readonly totals: GatewayTotals;
  /** Of its endpoints with traffic, by {@link endpointKey}. */
  readonly endpoints: readonly (readonly [key: string, figures: EndpointFigures])[];
}

/** One of the things that a condition concerns. */
export interface ConditionSubject {
  /** Its id, or its name where that is what it is known by: the same as long as it is the same thing. */
  readonly key: string;
  /** What people call it. */
  readonly name: string;
  /** Domain of its site; null: it is of none. */
  readonly site: string | null;
  /** What is wrong with it; left out: what the condition says of all. */
  readonly message?: string;
  /** Of the device that it is, or is on; left out: none. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Since when, in RFC 3339, where that is known. */
  readonly since?: string;
  /** The network from which a device was online last; left out: it is no device. */
  readonly network?: string;
}

/** What is wrong with a gateway, as it says. */
export interface ReportedCondition {
  /** Gateways of other versions have others. */
  readonly id: string;
  /** `critical`: it stops traffic or changes, or soon will. */
  readonly severity: 'critical' | 'warning';
  /** A sentence without its full stop, as messages of errors are. */
  readonly message: string;
  readonly remedy: string;
  /** What it concerns; left out: the gateway. Other gateways receive the first only. */
  readonly subjects?: readonly ConditionSubject[];
}

/** What one gateway tells another. */
export interface GatewayReport extends CountedTraffic {
  /** Left out: it does not know, or not soon enough. */
  readonly conditions?: readonly ReportedCondition[];
  /** Ids of the encryption keys that it knows; left out by older versions. */
  readonly encryptionKeys?: readonly string[];
  /** Ids of its own CAs, the next one last; left out by versions that cannot change theirs. */
  readonly cas?: readonly string[];
}

export interface CountedElsewhere {
  /** Of those that are missing, what they have said last. */
  readonly counted: readonly (GatewayReport & { readonly address: string })[];
  /** Addresses of the gateways that do not say. */
  readonly missing: readonly string[];
}

/** Of a gateway that is the only one. */
export const NOBODY_ELSE: CountedElsewhere = { counted: [], missing: [] };

/** What several gateways know an endpoint by: an agent with two sessions has it at two of them, with two ids. */
export function endpointKey({ id, sessionId, url }: Pick<LiveEndpoint, 'id' | 'sessionId' | 'url'>): string {
  return sessionId === null ? id : `${sessionId} ${url}`;
}

export function figuresOf({ traffic }: LiveEndpoint): EndpointFigures {
  return traffic === null ? [0, 0, 0, 0] : [traffic.requests, traffic.errors, traffic.received, traffic.sent];
}

export function hasTraffic(figures: EndpointFigures): boolean {
  return figures.some((figure) => figure > 0);
}

/** What a gateway has counted of its endpoints. */
export function countedBy(totals: GatewayTotals, endpoints: readonly LiveEndpoint[]): CountedTraffic {
  const all = endpoints.map((endpoint) => [endpointKey(endpoint), figuresOf(endpoint)] as const);
  return { totals, endpoints: all.filter(([, figures]) => hasTraffic(figures)) };
}

/** The members of an endpoint that only agents give it, for one without an agent. */
export const WITHOUT_AGENT = {
  name: '',
  tunnelId: null,
  sessionId: null,
  edgeId: null,
  credentialId: null,
  ownerId: null,
  upstreamUrl: null,
};

export interface LiveGateway {
  id: string;
  /** `host:port` of its HTTPS port. */
  address: string;
  /** Whether it is the one that says so. */
  isThis: boolean;
  state: 'serving' | 'draining' | 'silent';
  version: string;
  /** Since it last said that it is there. */
  silentSeconds: number;
  /** Changes of the shared database that it did not have then. */
  behind: number;
  sessions: number;
  endpoints: number;
}
