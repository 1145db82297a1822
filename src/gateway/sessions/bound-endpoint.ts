import type { Binding } from '../../management/resources/acl-rule.ts';
import type { CompiledPolicy } from '../../traffic-policy/engine.ts';
import type { TlsTermination } from '../../traffic-policy/policy-subjects.ts';
import type { ClientInfo, EndpointProtocol, GatewayEndpoint } from '../endpoints/endpoint.ts';
import type { EndpointAddress } from '../endpoints/endpoints.ts';
import { AgentListener, type ListenerOwner, type ListenerParticulars } from './agent-listener.ts';

export interface EndpointParticulars extends ListenerParticulars {
  url: string;
  protocol: EndpointProtocol;
  host: string;
  port: number;
  /** Whether it is reached from the policies of other endpoints alone. */
  internal: boolean;
  /** Whether it shares its address with others. */
  pooled: boolean;
  policy: CompiledPolicy;
  tls: TlsTermination | null;
  proxyProtocol: 0 | 1 | 2;
  websocketTcp: boolean;
}

/** A public URL and the listener of the agent behind it. */
export class BoundEndpoint extends AgentListener implements GatewayEndpoint, EndpointAddress {
  readonly url: string;
  readonly protocol: EndpointProtocol;
  readonly host: string;
  readonly port: number;
  readonly internal: boolean;
  readonly pooled: boolean;
  readonly policy: CompiledPolicy;
  readonly tls: TlsTermination | null;
  readonly proxyProtocol: 0 | 1 | 2;
  readonly websocketTcp: boolean;

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
  }

  get binding(): Binding {
    return bindingOf(this);
  }

  /** Policies can have the edge end TLS that the agent did not ask it to end. */
  protected override isPassthrough({ passthrough = this.tls === null }: ClientInfo): boolean {
    return this.protocol === 'tls' && passthrough;
  }
}

/** What a credential has to allow for an address. */
export function bindingOf({ protocol, host, port }: EndpointAddress): Binding {
  return protocol === 'tcp' ? { kind: 'address', address: `${host}:${port}` } : { kind: 'hostname', hostname: host };
}
