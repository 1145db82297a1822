import type { Router } from 'express';
import { optionsOf, UPSTREAM_TLS } from '../connectors/connector.ts';
import type { TunnelChange } from '../tunnels/tunnel.ts';
import type { TunnelView } from '../tunnels/tunnel-list.ts';
import type { TunnelManager } from '../tunnels/tunnel-manager.ts';
import type { UpstreamChecks } from '../upstreams/upstream-monitor.ts';
import { type CreatedTunnel, type ListedTunnel, TUNNEL_OPERATIONS, type TunnelDetail } from './agent-operations.ts';
import { serve } from './agent-routes.ts';

/** `/tunnels`: list, start, show, change and delete. */
export function tunnelsRouter(tunnels: TunnelManager, monitor: UpstreamChecks): Router {
  return serve(TUNNEL_OPERATIONS, {
    listTunnels: async ({ query: { protocol } }) => {
      await monitor.refresh();
      const views = tunnels.list().filter(({ tunnel }) => protocol === undefined || tunnel.protocol === protocol);
      return views.map((view) => presentListed(view, tunnels));
    },
    startTunnel: async ({ body }) => {
      const notices: string[] = [];
      const view = await tunnels.create(body, (text) => notices.push(text));
      await monitor.refresh(tunnels.reports.health(view) ?? undefined);
      const ofUpstream = tunnels.reports.notice(view);
      if (ofUpstream !== null) notices.push(ofUpstream);
      notices.push(...tunnels.reports.policyWarnings(view).map((warning) => `policy: ${warning}`));
      return presentCreated(view, notices.length > 0 ? notices.join('; ') : null);
    },
    getTunnel: async ({ req }) => {
      await monitor.refresh();
      return presentDetail(tunnels.find(req.params.url_part), tunnels);
    },
    changeTunnel: async ({ body, req }) => {
      const view = tunnels.find(req.params.url_part);
      await tunnels.changes.change(view, body);
      if (isOfUpstream(body)) await monitor.refresh(tunnels.reports.health(view) ?? undefined);
      return presentDetail(view, tunnels);
    },
    deleteTunnel: ({ req }) => tunnels.remove(tunnels.find(req.params.url_part)),
  });
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
