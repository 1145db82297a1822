import type { Binding } from '../../management/resources/acl-rule.ts';
import type { ClientInfo, LabeledUpstream } from '../endpoints/endpoint.ts';
import type { Labels } from '../endpoints/labels.ts';
import { AgentListener, type ListenerOwner, type ListenerParticulars } from './agent-listener.ts';

/** What an agent has bound under labels, for the edges whose backend selects them. */
export class LabeledTunnel extends AgentListener implements LabeledUpstream {
  readonly labels: Labels;
  /** An agent cannot ask for the header here. */
  readonly proxyProtocol = 0;

  readonly binding: Binding;

  constructor(particulars: ListenerParticulars & { labels: Labels }, owner: ListenerOwner) {
    super(particulars, owner);
    this.labels = particulars.labels;
    this.binding = { kind: 'labels', labels: particulars.labels };
  }

  protected override isPassthrough({ passthrough = false }: ClientInfo): boolean {
    return passthrough;
  }
}
