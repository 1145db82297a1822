import type { Binding } from '../../management/resources/acl-rule.ts';
import type { ClientInfo, EndpointProtocol, LabeledUpstream } from '../endpoints/endpoint.ts';
import type { Labels } from '../endpoints/label-selector.ts';
import { AgentListener, type ListenerOwner, type ListenerParticulars } from './agent-listener.ts';

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
