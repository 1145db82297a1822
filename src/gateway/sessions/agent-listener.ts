import type { Duplex } from 'node:stream';
import type { ByteChannel } from '../../agent-protocol/byte-channel.ts';
import { ChannelDuplex } from '../../agent-protocol/channel-duplex.ts';
import { StreamType, streamPrefix } from '../../agent-protocol/messages.ts';
import { ksuidOf } from '../../lib/ids.ts';
import { hostOf } from '../../lib/network/ip-address.ts';
import type { Binding } from '../../management/resources/acl-rule.ts';
import type { AgentUpstream, ClientInfo, EndpointProtocol } from '../endpoints/endpoint.ts';
import type { EndpointOwner } from '../endpoints/endpoint-owner.ts';
import type { EndpointTraffic } from '../endpoints/endpoint-traffic.ts';
import type { AgentInfo } from './agent-info.ts';
import { Lane } from './gated-channel.ts';
import type { StreamGate } from './stream-gate.ts';

export interface ListenerOwner extends EndpointOwner {
  /** `ts_…` */
  readonly id: string;
  readonly gate: StreamGate;
  readonly agent: AgentInfo;
}

export interface ListenerParticulars {
  /** The agent's id for it, unique within its session. */
  id: string;
  /** Unique among all listeners online. */
  publicId: string;
  /** The upstream as the agent reports it; for display only. */
  forwardsTo: string;
  metadata: string;
  http2Upstream: boolean;
}

/** What an agent has bound here (SDKs call it a listener): the gateway opens streams to it. */
export abstract class AgentListener implements AgentUpstream {
  readonly id: string;
  readonly publicId: string;
  readonly forwardsTo: string;
  metadata: string;
  readonly http2Upstream: boolean;
  readonly owner: ListenerOwner;
  readonly boundAt = new Date();
  readonly lane = new Lane();
  abstract readonly proxyProtocol: 0 | 1 | 2;
  /** The binding that the credential must allow for as long as the listener is online. */
  abstract readonly binding: Binding;

  constructor(particulars: ListenerParticulars, owner: ListenerOwner) {
    this.id = particulars.id;
    this.publicId = particulars.publicId;
    this.forwardsTo = particulars.forwardsTo;
    this.metadata = particulars.metadata;
    this.http2Upstream = particulars.http2Upstream;
    this.owner = owner;
  }

  /** `EdgeType` in the header of a connection. */
  protected abstract edgeTypeOf(protocol: EndpointProtocol): string;

  /** Whether the client's own TLS bytes are forwarded; the SDK must not wrap them in TLS again. */
  protected abstract isPassthrough(client: ClientInfo): boolean;

  /** `tn_…`: an endpoint and its tunnel share their KSUID; a labelled tunnel has its own id. */
  get tunnelId(): string {
    return `tn_${ksuidOf(this.publicId)}`;
  }

  get traffic(): EndpointTraffic {
    return this.lane.traffic;
  }

  get isResponsive(): boolean {
    return this.lane.unanswered.size === 0;
  }

  openChannel(client: ClientInfo): ByteChannel {
    const channel = this.owner.gate.open(this.lane, this.#preamble(client), hostOf(client.address));
    // SDKs parse it. They wait for more when what they read with it ends in a CR (`@ngrok/ngrok` 1.7.0): a client's first
    // bytes end so once in 256 times, and the client perhaps waits for an answer.
    if (client.proxyHeader) channel.writeApart(client.proxyHeader);
    return channel;
  }

  openStream(client: ClientInfo): Duplex {
    return new ChannelDuplex(this.openChannel(client));
  }

  /** Type and header of a PROXY stream. Its length is little endian, unlike everything else (`@ngrok/ngrok` 1.7.0). */
  #preamble(client: ClientInfo): Buffer {
    const { address, protocol } = client;
    const header = Buffer.from(
      JSON.stringify({
        Id: this.id,
        ClientAddr: address,
        Proto: protocol,
        EdgeType: this.edgeTypeOf(protocol),
        PassthroughTLS: this.isPassthrough(client),
      }),
    );
    const length = Buffer.alloc(8);
    length.writeBigInt64LE(BigInt(header.length));
    return Buffer.concat([streamPrefix(StreamType.proxy), length, header]);
  }
}
