import { optionsOf, UPSTREAM_TLS } from '../connectors/connector.ts';
import type { Tunnel, TunnelChange, TunnelRequest } from '../tunnels/tunnel.ts';
import type { TunnelView } from '../tunnels/tunnel-list.ts';
import type { TunnelManager } from '../tunnels/tunnel-manager.ts';
import type { UpstreamChecks } from '../upstreams/upstream-monitor.ts';
import type { CreatedTunnel, ListedTunnel, TunnelDetail } from './agent-operations.ts';

/** What the operations on tunnels do, for the API and for programs that embed the agent. */
export class TunnelActions {
  constructor(
    private readonly tunnels: TunnelManager,
    private readonly monitor: UpstreamChecks,
  ) {}

  /** @param protocol lists only tunnels of this protocol; left out: all */
  async list(protocol?: string): Promise<TunnelDetail[]> {
    await this.monitor.refresh();
    const views = this.tunnels.list().filter(({ tunnel }) => protocol === undefined || tunnel.protocol === protocol);
    return views.map((view) => presentDetail(view, this.tunnels));
  }

  /** Throws what {@link TunnelManager.create} does. */
  async create(request: TunnelRequest): Promise<CreatedTunnel> {
    const { tunnels, monitor } = this;
    const notices: string[] = [];
    const view = await tunnels.create(request, (text) => notices.push(text));
    await monitor.refresh(tunnels.reports.health(view) ?? undefined);
    const ofUpstream = tunnels.reports.notice(view);
    if (ofUpstream !== null) notices.push(ofUpstream);
    notices.push(...tunnels.reports.policyWarnings(view).map((warning) => `policy: ${warning}`));
    return presentCreated(view, notices.length > 0 ? notices.join('; ') : null);
  }

  /** @throws {AgentError} 404, or 409 when several tunnels match */
  async get(urlPart: string): Promise<TunnelDetail> {
    await this.monitor.refresh();
    return presentDetail(this.tunnels.find(urlPart), this.tunnels);
  }

  /** The tunnel itself. @throws {AgentError} as {@link get} */
  find(urlPart: string): Tunnel {
    return this.tunnels.find(urlPart).tunnel;
  }

  /** @throws {ApiError} as {@link get}, and when the change is not allowed or cannot be saved */
  async change(urlPart: string, change: TunnelChange): Promise<TunnelDetail> {
    const { tunnels, monitor } = this;
    const view = tunnels.find(urlPart);
    await tunnels.changes.change(view, change);
    if (isOfUpstream(change)) await monitor.refresh(tunnels.reports.health(view) ?? undefined);
    return presentDetail(view, tunnels);
  }

  /** @throws {ApiError} as {@link get}, and 500 when the change cannot be saved */
  async delete(urlPart: string): Promise<void> {
    await this.tunnels.remove(this.tunnels.find(urlPart));
  }
}

/** Whether a change is one of how the agent connects, so that what is known of the upstream counts no more. */
function isOfUpstream(change: TunnelChange): boolean {
  return ['forwards_to', 'host_header', ...UPSTREAM_TLS].some((member) => member in change);
}

function presentCreated({ tunnel }: TunnelView, notice: string | null): CreatedTunnel {
  const { url, protocol, forwards_to, domain, policy } = tunnel;
  return { url, protocol, forwards_to, domain, ...optionsOf(tunnel), policy, ...(notice !== null && { notice }) };
}

function presentListed(view: TunnelView, tunnels: TunnelManager): ListedTunnel {
  const { url, protocol, forwards_to, domain } = view.tunnel;
  const { state, since, lastError } = tunnels.reports.status(view);
  const warnings = tunnels.reports.policyWarnings(view);
  return {
    url,
    ...(view.endpoint?.domainUrl && { domain_url: view.endpoint.domainUrl }),
    url_part: tunnels.urlPartOf(view),
    protocol,
    forwards_to,
    domain,
    ...optionsOf(view.tunnel),
    policy: JSON.stringify(tunnels.policies.on(view.tunnel)),
    status: state,
    since: since.toISOString(),
    last_error: lastError,
    ...(warnings.length > 0 && { policy_warnings: [...warnings] }),
    upstream: presentUpstream(view, tunnels),
    traffic: presentTraffic(view, tunnels),
  };
}

export function presentDetail(view: TunnelView, tunnels: TunnelManager): TunnelDetail {
  return { ...presentListed(view, tunnels), created_at: view.tunnel.created_at };
}

function presentUpstream(view: TunnelView, { reports }: TunnelManager): ListedTunnel['upstream'] {
  const { state, since, checkedAt, reason } = reports.upstream(view);
  return { state, since: iso(since), checked_at: iso(checkedAt), reason };
}

function presentTraffic(view: TunnelView, { reports }: TunnelManager): ListedTunnel['traffic'] {
  const traffic = reports.traffic(view);
  if (traffic === null) return null;
  const { connections, requests, bytesIn, bytesOut, lastAt } = traffic;
  return { connections, requests, bytes_in: bytesIn, bytes_out: bytesOut, last_at: iso(lastAt) };
}

const iso = (date: Date | null): string | null => date?.toISOString() ?? null;
