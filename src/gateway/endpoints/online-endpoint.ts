import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { ByteChannel } from '../../agent-protocol/byte-channel.ts';
import type { CompiledPolicy } from '../../traffic-policy/engine.ts';
import type { EndpointProtocol, TlsTermination } from '../../traffic-policy/policy-subjects.ts';
import type { EndpointOwner, OwnerCredential } from './endpoint-owner.ts';
import type { ReportQueue, ReportReader, RequestFeed } from './request-feed.ts';
import type { EndpointTraffic } from './traffic-counts.ts';

export type { EndpointProtocol } from '../../traffic-policy/policy-subjects.ts';

export interface ClientInfo {
  /** `ip:port`, or `[ip]:port` for IPv6. */
  address: string;
  /** The client's connection, for state that an upstream keeps with one; omitted: it has no further requests. */
  connection?: Pick<Socket, 'once'>;
  /** Scheme in which the client reached the edge. */
  protocol: EndpointProtocol;
  /** PROXY header, which precedes everything else, for an upstream that expects one on each connection. */
  proxyHeader?: Buffer;
  /** Whether the client's own TLS is forwarded; omitted: as {@link GatewayEndpoint.tls} says, for labelled tunnels not. */
  passthrough?: boolean;
  /** The gateway asks for itself: its bytes are no traffic. Left out: it does not. */
  isProbe?: true;
}

export interface AgentUpstream {
  /** Version of the PROXY header that precedes the client's bytes; 0 for none. */
  readonly proxyProtocol: 0 | 1 | 2;
  /** Whether the upstream speaks HTTP/2 only, from the first byte. */
  readonly http2Upstream: boolean;
  /** The upstream's address as the agent reports it. */
  readonly forwardsTo: string;
  readonly traffic: EndpointTraffic;
  /**
   * Opens a connection to the upstream. Bytes written in the same tick leave with its first frame.
   * @throws {StreamsExhausted} at the session's stream limit; Error when the session has ended
   */
  openChannel(client: ClientInfo): ByteChannel;
  /** Like {@link openChannel}, as a Node stream. */
  openStream(client: ClientInfo): Duplex;
  /** Whether its agent does not answer, but is not given up yet: requests go to another session if possible. Left out: there is no agent. */
  readonly isStalled?: boolean;
  /** The agent could not connect to it: for some seconds, other members of the pool come first. Left out: there is no agent. */
  rest?(): void;
}

export interface EndpointAddress {
  readonly protocol: EndpointProtocol;
  /** Lower-case hostname; can be a wildcard: `*.example.com`. */
  readonly host: string;
  readonly port: number;
  /** Whether only the policies of other endpoints can reach it. */
  readonly internal: boolean;
}

/** A public URL bound by an agent's session: what the edge routes to. */
export interface GatewayEndpoint extends AgentUpstream, Omit<EndpointAddress, 'internal'> {
  /** `ep_…`, stable across reconnects. */
  readonly id: string;
  readonly url: string;
  /** Whose agent has bound it; left out: another gateway serves it. */
  readonly owner?: EndpointOwner;
  readonly policy: CompiledPolicy;
  /** How the edge terminates TLS; null: the endpoint has none, or a `tls` endpoint passes it through to the agent. */
  readonly tls: TlsTermination | null;
  /** Whether clients speak WebSocket and the upstream gets the bytes inside. */
  readonly websocketTcp: boolean;
  /** Those who watch its requests; null when nobody does. */
  readonly feed: RequestFeed | null;
  /** Tells the agent that a response of the upstream was refused; left out: nobody wants to know. */
  answerRefused?(reason: string): void;
  /** Whether its agent forgets what the upstream has answered when it cannot write to it, as the SDK does. */
  readonly losesAnswers?: boolean;
  /** Another gateway serves it, and runs the actions of its policy. */
  readonly isRemote?: true;
  /** Whether that gateway writes the X-Forwarded headers of its requests. */
  readonly writesForwarded?: boolean;
  /** No agent has bound it: its policy alone serves clients. */
  readonly isCloud?: true;
  /** Whether it shares its address with other endpoints; left out: no. */
  readonly pooled?: boolean;
}

export interface OnlineEndpoint extends GatewayEndpoint, EndpointAddress {
  /** `ep_…`, unique among all endpoints online. */
  readonly publicId: string;
  readonly pooled: boolean;
  readonly owner: EndpointOwner;
  /** Whether the agent has reacted to every stream sent to it, can take a further one, and its upstream is not down. */
  readonly isResponsive: boolean;
  /** @returns close it to end the reports */
  watchRequests(reader: ReportReader): ReportQueue;
}

/** How the edge terminates TLS by default: with a certificate of the gateway. */
export const EDGE_TERMINATION: TlsTermination = {
  minVersion: '1.2',
  maxVersion: '1.3',
  certificate: null,
  privateKey: null,
  clientAuthorities: [],
  clientVerification: 'require-and-verify',
};

/** Whether only a handshake that named the endpoint can meet its demands. */
export function demandsHandshake({ tls, policy }: Pick<GatewayEndpoint, 'tls' | 'policy'>): boolean {
  if (policy.terminatesTls) return true;
  return tls !== null && (tls.clientAuthorities.length > 0 || tls.minVersion !== EDGE_TERMINATION.minVersion);
}

/** A tunnel that was bound under labels, by whom and when. */
export interface LabelHolder {
  /** `tn_…` */
  readonly publicId: string;
  readonly owner: { readonly credential: Pick<OwnerCredential, 'id' | 'ownerId' | 'hasRules'> };
  readonly boundAt: Date;
}

/** What an agent has bound under labels. It has no URL: only edges whose backend selects the labels route to it. */
export interface LabeledUpstream extends AgentUpstream, LabelHolder {
  readonly labels: Labels;
  readonly isResponsive: boolean;
}

export class StreamsExhausted extends Error {
  constructor() {
    super('stream limit reached: the agent session cannot carry more connections');
    this.name = 'StreamsExhausted';
  }
}

export type Labels = Readonly<Record<string, string>>;

/** Whether the labels include every one of the selector's. An empty selector matches nothing. */
export function matchesSelector(labels: Labels, selector: Labels): boolean {
  const entries = Object.entries(selector);
  return entries.length > 0 && entries.every(([key, value]) => Object.hasOwn(labels, key) && labels[key] === value);
}

/** Where an internal endpoint is. */
export type InternalAddress = Omit<EndpointAddress, 'internal'>;

/** Finds the internal endpoint that is online at an address; the members of a pool take turns. */
export type InternalLookup = (protocol: EndpointProtocol, host: string, port: number) => GatewayEndpoint | undefined;

/** Finds internal endpoints for a client, at other gateways as well, unless one of these has passed the client on. */
export type InternalLookupFor = (client: Socket) => InternalLookup;

/** Whether a client's address may not use endpoints. */
export type RefusesClient = (client: { readonly remoteAddress?: string | undefined }) => boolean;

/** An address whose agent is expected back. */
export interface LostAddress {
  /** As `placeOf` says. */
  readonly place: string;
  /** Of the authtoken that had bound it. */
  readonly credentialId: string;
  /** Whether clients need a handshake that the endpoint decides about: `tls` endpoints, and those with demands of their own. */
  readonly needsHandshake: boolean;
  /** When the agent is no longer expected, in milliseconds of `performance.now()`. */
  readonly until: number;
}

/** Addresses that have lost their agents a moment ago. */
export interface ExpectedAgents {
  /** @returns undefined when no agent is expected there */
  at(place: string): LostAddress | undefined;
  /** The most specific name or wildcard that covers a host and has lost its agent. */
  covering(port: 'http' | 'tls', host: string): LostAddress | undefined;
  /** `found`: an address is online again. */
  on(event: 'found', listener: (place: string) => void): unknown;
  off(event: 'found', listener: (place: string) => void): unknown;
}

/** The endpoints that are online, as the edge sees them. */
export interface EndpointDirectory {
  /** The members of a pool take turns. */
  lookup(scheme: 'http' | 'https' | 'tls', host: string): GatewayEndpoint | undefined;
  /** What `lookup` would return next; does not advance the pool's rotation. */
  peek(scheme: 'http' | 'https' | 'tls', host: string): GatewayEndpoint | undefined;
  readonly internal: InternalLookup;
  /** Addresses whose agents are expected back. */
  readonly lost: ExpectedAgents;
  /** The next member of the endpoint's pool, none of those that were tried; undefined: there is no other one. */
  another(
    endpoint: GatewayEndpoint,
    tried: ReadonlySet<GatewayEndpoint>,
  ): (GatewayEndpoint & Pick<EndpointAddress, 'internal'>) | undefined;
  /** `retired`: no further connection is routed to it. `removed`: what it carries ends, too. */
  on(event: 'retired' | 'removed', listener: (endpoint: GatewayEndpoint) => void): unknown;
  off(event: 'retired' | 'removed', listener: (endpoint: GatewayEndpoint) => void): unknown;
}
