import type { Binding } from '../../management/resources/acl-rule.ts';
import type { CompiledPolicy } from '../../traffic-policy/engine.ts';
import type { PolicyFrame } from '../../traffic-policy/policy-frame.ts';
import type { TlsTermination } from '../../traffic-policy/policy-subjects.ts';
import type { ClientInfo, EndpointAddress, EndpointProtocol, OnlineEndpoint } from '../endpoints/endpoint.ts';
import { bindingOf } from '../endpoints/endpoint-address.ts';
import { type ReportQueue, type ReportReader, RequestFeed } from '../endpoints/request-feed.ts';
import { AgentListener, type ListenerOwner, type ListenerParticulars } from './agent-listener.ts';

export interface EndpointParticulars extends ListenerParticulars, EndpointAddress {
  url: string;
  /** Whether it shares its address with other endpoints. */
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

/** A public URL and the agent's listener behind it. */
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
  /** When its agent last changed it. */
  updatedAt = this.boundAt;
  feed: RequestFeed | null = null;

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

  get binding(): Binding {
    return bindingOf(this);
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
