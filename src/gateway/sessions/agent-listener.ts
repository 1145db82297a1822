import type { Duplex } from 'node:stream';
import type { ByteChannel } from '../../agent-protocol/byte-channel.ts';
import { ChannelDuplex } from '../../agent-protocol/channel-duplex.ts';
import { StreamType, streamPrefix } from '../../agent-protocol/messages.ts';
import { ksuidOf } from '../../lib/ids.ts';
import { hostOf } from '../../lib/network/ip-address.ts';
import { turnTime } from '../../lib/time/loop-turn.ts';
import type { Binding } from '../../management/resources/acl-rule.ts';
import type { AccessWay } from '../../traffic-policy/access.ts';
import type { PolicyFrame } from '../../traffic-policy/compile-rules.ts';
import type { CompiledPolicy } from '../../traffic-policy/engine.ts';
import type { TlsTermination } from '../../traffic-policy/policy-subjects.ts';
import { bindingOf } from '../endpoints/endpoint-address.ts';
import type { EndpointOwner } from '../endpoints/endpoint-owner.ts';
import type { LiveEndpoint } from '../endpoints/live-view.ts';
import {
  type AgentUpstream,
  type ClientInfo,
  demandsHandshake,
  type EndpointAddress,
  type EndpointProtocol,
  type LabeledUpstream,
  type Labels,
  type OnlineEndpoint,
} from '../endpoints/online-endpoint.ts';
import { type ReportQueue, type ReportReader, RequestFeed } from '../endpoints/request-feed.ts';
import type { EndpointTraffic } from '../endpoints/traffic-counts.ts';
import { timestamp } from '../store/store.ts';
import type { AgentInfo } from './agent-info.ts';
import { Lane, type StreamGate } from './stream-gate.ts';

export interface ListenerOwner extends EndpointOwner {
  /** `ts_…` */
  readonly id: string;
  /** IP address of the agent. */
  readonly address: string;
  readonly gate: StreamGate;
  /** The endpoints and tunnels that it has bound. */
  readonly listeners: Iterable<AgentListener>;
  readonly agent: AgentInfo;
  /** Whether the answer to BIND may have warnings of the policy, and where else clients reach the endpoint. */
  readonly takesWarnings: boolean;
  /** It knows what it has sent: answers need not repeat it. */
  readonly takesShortAnswers: boolean;
  /** See {@link AgentUpstream.isStalled}. */
  readonly isStalled: boolean;
  /** Whether the device's data budget has something left for the listener. */
  hasDataFor(id: string): boolean;
  /** @throws {ApiError} when it has not */
  refuseStream(id: string): void;
  /** Whether it delivers what an upstream has answered, also when it cannot write to it. */
  readonly keepsAnswers: boolean;
  /** The response of a listener's upstream was refused. */
  answerRefused(listener: Pick<AgentListener, 'id'>, reason: string): void;
}

interface ListenerParticulars {
  /** The agent's id for it, unique within its session. */
  id: string;
  publicId: string;
  /** The upstream as the agent reports it; for display only. */
  forwardsTo: string;
  metadata: string;
  http2Upstream: boolean;
}

/** Milliseconds for which a member of a pool rests whose agent could not connect to its upstream. */
const REST_MS = 10_000;

/** What an agent has bound here (SDKs call it a listener): the gateway opens streams to it. */
abstract class AgentListener implements AgentUpstream {
  readonly id: string;
  readonly publicId: string;
  readonly forwardsTo: string;
  metadata: string;
  readonly http2Upstream: boolean;
  readonly boundAt = new Date();
  readonly lane: Lane;
  readonly traffic: EndpointTraffic;
  /** In milliseconds of `performance.now()`. */
  #restsUntil = Number.NEGATIVE_INFINITY;
  /** Whether the agent has said that it cannot connect to its upstream. */
  #isDown = false;
  abstract readonly proxyProtocol: 0 | 1 | 2;
  /** The binding that the credential must allow for as long as the listener is online. */
  abstract readonly binding: Binding;

  constructor(
    particulars: ListenerParticulars,
    readonly owner: ListenerOwner,
  ) {
    this.id = particulars.id;
    this.publicId = particulars.publicId;
    this.forwardsTo = particulars.forwardsTo;
    this.metadata = particulars.metadata;
    this.http2Upstream = particulars.http2Upstream;
    this.lane = new Lane(particulars.forwardsTo);
    this.traffic = this.lane.traffic;
  }

  protected abstract edgeTypeOf(protocol: EndpointProtocol): string;

  /** Whether the client's own TLS bytes are forwarded; the SDK must not wrap them in TLS again. */
  protected abstract isPassthrough(client: ClientInfo): boolean;

  /** `tn_…`: an endpoint and its tunnel share their KSUID; a labelled tunnel has its own id. */
  get tunnelId(): string {
    return `tn_${ksuidOf(this.publicId)}`;
  }

  get isStalled(): boolean {
    return this.owner.isStalled;
  }

  get isResponsive(): boolean {
    if (this.isStalled || this.#isDown || turnTime() < this.#restsUntil || !this.owner.hasDataFor(this.id))
      return false;
    return this.lane.unanswered.size === 0 && this.owner.gate.hasRoom(this.lane);
  }

  rest(): void {
    this.#restsUntil = turnTime() + REST_MS;
  }

  /** The agent says whether it can connect to the upstream: a member of a pool rests until it can. */
  noteUpstream(isDown: boolean): void {
    this.#isDown = isDown;
    if (!isDown) this.#restsUntil = Number.NEGATIVE_INFINITY;
  }

  openChannel(client: ClientInfo): ByteChannel {
    this.owner.refuseStream(this.id);
    const channel = this.owner.gate.open(this.lane, this.#preamble(client), hostOf(client.address));
    if (client.isProbe) channel.traffic = { received: 0, sent: 0 };
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

const EDGE_TYPES: Readonly<Record<EndpointProtocol, string>> = { tcp: '1', tls: '2', http: '3', https: '3' };

/** A listener bound under labels, for edges whose backend selects them. */
export class LabeledTunnel extends AgentListener implements LabeledUpstream {
  readonly labels: Labels;
  /** Agents cannot request a PROXY header for labelled tunnels. */
  readonly proxyProtocol = 0;

  readonly binding: Binding;

  constructor(particulars: ListenerParticulars & { labels: Labels }, owner: ListenerOwner) {
    super(particulars, owner);
    this.labels = particulars.labels;
    this.binding = { kind: 'labels', labels: particulars.labels };
  }

  /** SDKs read it, since a labelled tunnel has no protocol of its own. */
  protected override edgeTypeOf(protocol: EndpointProtocol): string {
    return EDGE_TYPES[protocol];
  }

  protected override isPassthrough({ passthrough = false }: ClientInfo): boolean {
    return passthrough;
  }
}

/** Between two refused responses of which the agent is told. */
const REFUSED_MS = 1_000;

interface EndpointParticulars extends ListenerParticulars, EndpointAddress {
  url: string;
  pooled: boolean;
  policy: CompiledPolicy;
  /** The rules around the policy that the endpoint's options require. */
  frame: PolicyFrame;
  tls: TlsTermination | null;
  proxyProtocol: 0 | 1 | 2;
  websocketTcp: boolean;
  name: string;
  description: string;
}

export class BoundEndpoint extends AgentListener implements OnlineEndpoint {
  readonly url: string;
  readonly protocol: EndpointProtocol;
  readonly host: string;
  readonly port: number;
  readonly internal: boolean;
  readonly pooled: boolean;
  policy: CompiledPolicy;
  readonly tls: TlsTermination | null;
  readonly proxyProtocol: 0 | 1 | 2;
  readonly websocketTcp: boolean;
  readonly frame: PolicyFrame;
  name: string;
  description: string;
  updatedAt = this.boundAt;
  feed: RequestFeed | null = null;
  /** When its agent was last told, in milliseconds of `performance.now()`. */
  #refusedAt = Number.NEGATIVE_INFINITY;

  constructor(particulars: EndpointParticulars, owner: ListenerOwner) {
    super(particulars, owner);
    this.url = particulars.url;
    this.protocol = particulars.protocol;
    this.host = particulars.host;
    this.port = particulars.port;
    this.internal = particulars.internal;
    this.pooled = particulars.pooled;
    this.policy = particulars.policy;
    this.tls = particulars.tls;
    this.proxyProtocol = particulars.proxyProtocol;
    this.websocketTcp = particulars.websocketTcp;
    this.frame = particulars.frame;
    this.name = particulars.name;
    this.description = particulars.description;
  }

  watchRequests(reader: ReportReader): ReportQueue {
    this.feed ??= new RequestFeed(() => {
      this.feed = null;
    });
    return this.feed.watch(reader);
  }

  answerRefused(reason: string): void {
    const now = performance.now();
    if (now - this.#refusedAt < REFUSED_MS) return;
    this.#refusedAt = now;
    this.owner.answerRefused(this, reason);
  }

  get losesAnswers(): boolean {
    return !this.owner.keepsAnswers;
  }

  get binding(): Binding {
    return bindingOf(this);
  }

  view(): LiveEndpoint {
    const { owner } = this;
    return {
      id: this.publicId,
      type: 'ephemeral',
      proto: this.protocol,
      host: this.host,
      port: this.port,
      url: this.url,
      createdAt: timestamp(this.boundAt.getTime()),
      updatedAt: timestamp(this.updatedAt.getTime()),
      metadata: this.metadata,
      description: this.description,
      name: this.name,
      tunnelId: this.tunnelId,
      sessionId: owner.id,
      ...(owner.agent.instance !== null && { instance: owner.agent.instance }),
      ...(owner.agent.connectionNumber > 0 && { connectionNumber: owner.agent.connectionNumber }),
      edgeId: null,
      credentialId: owner.credential.id,
      ownerId: owner.credential.ownerId,
      upstreamUrl: this.forwardsTo,
      poolingEnabled: this.pooled,
      internal: this.internal,
      ...(demandsHandshake(this) && { needsOwnConnection: true }),
      access: this.access,
      ...(this.policy.admission && { admission: this.policy.admission }),
      traffic: this.traffic,
    };
  }

  /** Who may come in. Its options can ask for a certificate, too. */
  get access(): readonly AccessWay[] {
    const { access } = this.policy;
    if (!this.tls?.clientAuthorities.length || access.includes('certificate')) return access;
    return ['certificate', ...access.filter((way) => way !== 'everyone')];
  }

  /** Undefined: only edges have a type (`EdgeType` 0 in ngrok's Go SDK). */
  protected override edgeTypeOf(): string {
    return '0';
  }

  /** A policy can make the edge terminate TLS although the agent did not ask for it. */
  protected override isPassthrough({ passthrough = this.tls === null }: ClientInfo): boolean {
    return this.protocol === 'tls' && passthrough;
  }
}
