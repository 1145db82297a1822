import { z } from 'zod';
import { TUNNEL_STATES } from '../tunnels/tunnel.ts';
import type { TunnelView } from '../tunnels/tunnel-list.ts';
import type { TunnelManager } from '../tunnels/tunnel-manager.ts';

/** Why something failed: the gateway's or the agent's code, if there is one, and a message. */
export const LastError = z.object({ code: z.string().nullable(), message: z.string() }).nullable();

const TunnelMembers = z.object({
  url: z.string(),
  protocol: z.string(),
  forwards_to: z.string(),
  domain: z.string(),
});

/** A tunnel in the answer to the request that created it; its policy as it was sent. */
export const CreatedTunnel = TunnelMembers.extend({ policy: z.record(z.string(), z.unknown()).nullable() });
export type CreatedTunnel = z.infer<typeof CreatedTunnel>;

/** A tunnel in a list: its policy is the one in force, as a JSON string. */
export const ListedTunnel = TunnelMembers.extend({ url_part: z.string(), policy: z.string() });
export type ListedTunnel = z.infer<typeof ListedTunnel>;

export const TunnelDetail = ListedTunnel.extend({
  status: z.enum(TUNNEL_STATES),
  since: z.iso.datetime(),
  last_error: LastError,
  created_at: z.string(),
});
export type TunnelDetail = z.infer<typeof TunnelDetail>;

export function presentCreated({ tunnel: { url, protocol, forwards_to, domain, policy } }: TunnelView): CreatedTunnel {
  return { url, protocol, forwards_to, domain, policy };
}

export function presentItem(view: TunnelView, tunnels: TunnelManager): ListedTunnel {
  const { url, protocol, forwards_to, domain } = view.tunnel;
  const policy = JSON.stringify(tunnels.policies.on(view.tunnel));
  return { url, url_part: tunnels.urlPartOf(view), protocol, forwards_to, domain, policy };
}

/**
 * Connections are not counted: the SDK (1.7.0) reports none for a listener, and they bypass the agent unless the
 * upstream needs a relay.
 */
export function presentDetail(view: TunnelView, tunnels: TunnelManager): TunnelDetail {
  const { state, since, lastError } = view.status;
  return {
    ...presentItem(view, tunnels),
    status: state,
    since: since.toISOString(),
    last_error: lastError,
    created_at: view.tunnel.created_at,
  };
}
