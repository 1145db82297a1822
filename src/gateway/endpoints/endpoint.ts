import type { Duplex } from 'node:stream';
import type { ByteChannel } from '../../agent-protocol/byte-channel.ts';
import type { CompiledPolicy } from '../../traffic-policy/engine.ts';
import type { EndpointProtocol, TlsTermination } from '../../traffic-policy/policy-subjects.ts';
import type { EndpointOwner } from './endpoint-owner.ts';
import type { EndpointTraffic } from './endpoint-traffic.ts';
import type { Labels } from './label-selector.ts';
import type { ReportQueue, ReportReader, RequestFeed } from './request-feed.ts';

export type { EndpointProtocol } from '../../traffic-policy/policy-subjects.ts';

/** The client for which a stream to the agent is opened. */
export interface ClientInfo {
  /** `ip:port`, or `[ip]:port` for IPv6. */
  address: string;
  /** Scheme in which the client reached the edge. */
  protocol: EndpointProtocol;
  /** PROXY header, which precedes everything else, for an upstream that expects one on each connection. */
  proxyHeader?: Buffer;
  /**
   * Whether the client's own TLS bytes are forwarded. When omitted: false for labelled tunnels; for endpoints it follows
   * from {@link GatewayEndpoint.tls}.
   */
  passthrough?: boolean;
}

/** An upstream that is reached through an agent. */
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
   *
   * @throws {StreamsExhausted} when the session has reached its stream limit; Error when the session has ended
   */
  openChannel(client: ClientInfo): ByteChannel;
  /** Like {@link openChannel}, as a Node stream. */
  openStream(client: ClientInfo): Duplex;
}

/** What an endpoint occupies. */
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
  readonly policy: CompiledPolicy;
  /**
   * How the edge terminates TLS. Null when it does not: the endpoint has no TLS, or a `tls` endpoint passes it through to
   * the agent.
   */
  readonly tls: TlsTermination | null;
  /** Whether clients speak WebSocket and the upstream gets the bytes inside. */
  readonly websocketTcp: boolean;
  /** Those who watch its requests; null when nobody does. */
  readonly feed: RequestFeed | null;
}

/** An endpoint as the registry keeps it. */
export interface OnlineEndpoint extends GatewayEndpoint, EndpointAddress {
  /** `ep_…`, unique among all endpoints online. */
  readonly publicId: string;
  /** Whether it shares its address with other endpoints. */
  readonly pooled: boolean;
  readonly owner: EndpointOwner;
  /** Whether the agent has reacted to every stream sent to it. */
  readonly isResponsive: boolean;
  /**
   * Reports its requests from now on.
   *
   * @returns close it to end this
   */
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

/** What an agent has bound under labels. It has no URL: only edges whose backend selects the labels route to it. */
export interface LabeledUpstream extends AgentUpstream {
  /** `tn_…` */
  readonly publicId: string;
  readonly labels: Labels;
  readonly owner: Pick<EndpointOwner, 'credential'>;
  readonly isResponsive: boolean;
}

/** Thrown by {@link AgentUpstream.openChannel}; the client gets a 503. */
export class StreamsExhausted extends Error {
  constructor() {
    super('stream limit reached: the agent session cannot carry more connections');
    this.name = 'StreamsExhausted';
  }
}
