import type { Duplex } from 'node:stream';
import type { CompiledPolicy } from '../../traffic-policy/engine.ts';
import type { ClientInfo, EndpointProtocol, GatewayEndpoint, UpstreamChannel } from '../endpoint.ts';
import { TunnelStream } from '../tunnel-stream.ts';
import type { Credential } from './agent-access.ts';
import { StreamType, streamPrefix } from './messages.ts';
import { Lane, type StreamGate } from './stream-gate.ts';

/** The session that an endpoint belongs to. */
export interface EndpointOwner {
  readonly credential: Credential;
  readonly gate: StreamGate;
  /** False once the session is over. */
  readonly online: boolean;
  /** Asks the agent for a sign of life; resolves with false when there is none within a second. */
  isAlive(): Promise<boolean>;
  /** Ends the session, and takes its endpoints offline before it returns. */
  end(reason: Error): void;
}

export interface EndpointParticulars {
  /** The agent's name for it: unique within its session. */
  id: string;
  /** `ep_…`, unique among all endpoints. */
  publicId: string;
  url: string;
  protocol: EndpointProtocol;
  host: string;
  policy: CompiledPolicy;
  /** What the agent shows as the upstream; display only. */
  forwardsTo: string;
  metadata: string;
}

/** `EdgeType` of a proxied HTTP connection. */
const HTTPS_EDGE = '3';

/** A public URL and the listener of the agent behind it. */
export class BoundEndpoint implements GatewayEndpoint {
  readonly id: string;
  readonly publicId: string;
  readonly url: string;
  readonly protocol: EndpointProtocol;
  readonly host: string;
  readonly port: number;
  readonly policy: CompiledPolicy;
  readonly forwardsTo: string;
  readonly metadata: string;
  readonly owner: EndpointOwner;
  readonly boundAt = new Date();
  readonly lane = new Lane();

  constructor(particulars: EndpointParticulars, owner: EndpointOwner) {
    this.id = particulars.id;
    this.publicId = particulars.publicId;
    this.url = particulars.url;
    this.protocol = particulars.protocol;
    this.host = particulars.host;
    this.port = portOf(particulars.url);
    this.policy = particulars.policy;
    this.forwardsTo = particulars.forwardsTo;
    this.metadata = particulars.metadata;
    this.owner = owner;
  }

  openChannel(client: ClientInfo): UpstreamChannel {
    return this.owner.gate.open(this.lane, proxyPreamble(this.id, client));
  }

  openStream(client: ClientInfo): Duplex {
    return new TunnelStream(this.openChannel(client));
  }
}

const DEFAULT_PORTS = new Map([
  ['http:', 80],
  ['https:', 443],
]);

function portOf(url: string): number {
  const { port, protocol } = new URL(url);
  return port === '' ? (DEFAULT_PORTS.get(protocol) ?? 0) : Number(port);
}

/** Type and header of a PROXY stream. The length is little endian, unlike everything else. */
function proxyPreamble(id: string, client: ClientInfo): Buffer {
  const header = Buffer.from(
    JSON.stringify({
      Id: id,
      ClientAddr: client.address,
      Proto: client.protocol,
      EdgeType: HTTPS_EDGE,
      PassthroughTLS: false,
    }),
  );
  const length = Buffer.alloc(8);
  length.writeBigInt64LE(BigInt(header.length));
  return Buffer.concat([streamPrefix(StreamType.proxy), length, header]);
}
