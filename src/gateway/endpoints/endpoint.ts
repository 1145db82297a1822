import type { Duplex } from 'node:stream';
import type { ByteChannel } from '../../agent-protocol/byte-channel.ts';
import type { CompiledPolicy } from '../../traffic-policy/engine.ts';
import type { EndpointProtocol, TlsTermination } from '../../traffic-policy/policy-subjects.ts';

export type { EndpointProtocol } from '../../traffic-policy/policy-subjects.ts';

/** The public client on whose behalf a stream to the agent is opened. */
export interface ClientInfo {
  /** `ip:port`, or `[ip]:port` for IPv6. */
  address: string;
  /** Scheme in which the client spoke to the edge. */
  protocol: EndpointProtocol;
  /** PROXY header, for an upstream that wants one with each connection. */
  proxyHeader?: Buffer;
  /**
   * Whether the client's own TLS bytes are sent. Left out: no for labelled tunnels; for endpoints what their
   * {@link GatewayEndpoint.tls} says.
   */
  passthrough?: boolean;
}

/** What connections can be opened to through an agent. */
export interface AgentUpstream {
  /** Version of the PROXY header that has to precede what a client sends; 0 for none. */
  readonly proxyProtocol: 0 | 1 | 2;
  /** Whether the upstream speaks HTTP/2 from its first byte on, and nothing else. */
  readonly http2Upstream: boolean;
  /** The upstream as the agent names it. */
  readonly forwardsTo: string;
  /**
   * Opens one connection to the upstream through the agent. What is written to it at once leaves with its first frame.
   *
   * @throws {StreamsExhausted} when the agent's session carries as many streams as it can; Error when it is over
   */
  openChannel(client: ClientInfo): ByteChannel;
  /** The same as a stream, for whoever pipes. */
  openStream(client: ClientInfo): Duplex;
}

/** A public URL bound by an agent's session: what the edge routes to. */
export interface GatewayEndpoint extends AgentUpstream {
  /** `ep_…`, stable across reconnects. */
  readonly id: string;
  readonly url: string;
  readonly protocol: EndpointProtocol;
  /** Lower-case hostname; perhaps a wildcard such as `*.example.com`. */
  readonly host: string;
  /** Of the public URL. */
  readonly port: number;
  readonly policy: CompiledPolicy;
  /**
   * How the edge ends the TLS of its clients; null when it does not: there is none, or a `tls` endpoint's goes through
   * to the agent as it is.
   */
  readonly tls: TlsTermination | null;
  /** Whether clients speak WebSocket, and the upstream what is in it. */
  readonly websocketTcp: boolean;
}

/** How the edge ends TLS when nobody asks for anything else: with a certificate of the gateway's. */
export const EDGE_TERMINATION: TlsTermination = {
  minVersion: '1.2',
  maxVersion: '1.3',
  certificate: null,
  privateKey: null,
  clientAuthorities: [],
  clientVerification: 'require-and-verify',
};

/** What an agent has bound under labels: no URL leads there, but an edge whose backend selects the labels. */
export interface LabeledUpstream extends AgentUpstream {
  /** `tn_…` */
  readonly publicId: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** Raised by {@link AgentUpstream.openChannel}; a 503 towards the public client. */
export class StreamsExhausted extends Error {
  constructor() {
    super('the agent carries as many connections as one session can');
    this.name = 'StreamsExhausted';
  }
}
