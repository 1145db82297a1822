import { z } from 'zod';
import { SHOWN_STATES } from '../tunnels/tunnel.ts';
import type { TunnelView } from '../tunnels/tunnel-list.ts';
import type { TunnelManager } from '../tunnels/tunnel-manager.ts';
import { UPSTREAM_STATES } from '../upstreams/upstream-health.ts';

/** Why something failed: the gateway's or the agent's code, if there is one, and a message. */
export const LastError = z.object({ code: z.string().nullable(), message: z.string() }).nullable();

const TunnelMembers = z.object({
  url: z.string(),
  protocol: z.string(),
  forwards_to: z.string(),
  domain: z.string(),
});

/** A tunnel in the answer to the request that created it; its policy as it was sent. */
export const CreatedTunnel = TunnelMembers.extend({
  policy: z.record(z.string(), z.unknown()).nullable(),
  notice: z
    .string()
    .optional()
    .meta({ description: 'Why the domain is not the one that was asked for, or why the upstream will not work.' }),
});
export type CreatedTunnel = z.infer<typeof CreatedTunnel>;

/** Whether the upstream accepts connections, as of the last connection of a client or a check. */
const UpstreamReport = z.object({
  state: z.enum(UPSTREAM_STATES),
  since: z.iso.datetime().nullable(),
  checked_at: z.iso.datetime().nullable(),
  reason: z.string().nullable(),
});

const Count = z.int().nonnegative();

/**
 * Since the start of the agent. Null when connections bypass it, as those of the SDK to addresses and localhost do, unless
 * the embedded gateway counts them, since the tunnel came online.
 */
const TrafficReport = z
  .object({
    connections: Count.nullable(),
    requests: Count,
    bytes_in: Count,
    bytes_out: Count,
    last_at: z.iso.datetime().nullable(),
  })
  .nullable();

/** A tunnel in a list: its policy is the one in force, as a JSON string. */
export const ListedTunnel = TunnelMembers.extend({
  url_part: z.string(),
  policy: z.string(),
  status: z.enum(SHOWN_STATES),
  since: z.iso.datetime(),
  last_error: LastError,
  upstream: UpstreamReport,
  traffic: TrafficReport,
});
export type ListedTunnel = z.infer<typeof ListedTunnel>;

export const TunnelDetail = ListedTunnel.extend({ created_at: z.string() });
export type TunnelDetail = z.infer<typeof TunnelDetail>;

export function presentCreated(
  { tunnel: { url, protocol, forwards_to, domain, policy } }: TunnelView,
  notice: string | null,
): CreatedTunnel {
  return { url, protocol, forwards_to, domain, policy, ...(notice !== null && { notice }) };
}

export function presentItem(view: TunnelView, tunnels: TunnelManager): ListedTunnel {
  const { url, protocol, forwards_to, domain } = view.tunnel;
  const { state, since, lastError } = tunnels.reports.status(view);
  return {
    url,
    url_part: tunnels.urlPartOf(view),
    protocol,
    forwards_to,
    domain,
    policy: JSON.stringify(tunnels.policies.on(view.tunnel)),
    status: state,
    since: since.toISOString(),
    last_error: lastError,
    upstream: presentUpstream(view, tunnels),
    traffic: presentTraffic(view, tunnels),
  };
}

export function presentDetail(view: TunnelView, tunnels: TunnelManager): TunnelDetail {
  return { ...presentItem(view, tunnels), created_at: view.tunnel.created_at };
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
