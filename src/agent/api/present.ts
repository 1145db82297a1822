import type { TunnelView } from '../tunnels/tunnel-list.ts';
import type { TunnelManager } from '../tunnels/tunnel-manager.ts';

/** What clients get of tunnels: nothing in it changes on its way through JSON. */
export type CreatedTunnel = ReturnType<typeof presentCreated>;
export type ListedTunnel = ReturnType<typeof presentItem>;
export type TunnelDetail = ReturnType<typeof presentDetail>;

/** A tunnel in the answer to the request that created it. */
export function presentCreated({ tunnel: { url, protocol, forwards_to, domain, policy } }: TunnelView) {
  return { url, protocol, forwards_to, domain, policy };
}

/** A tunnel in a list: its policy is the one in force, as a JSON string. */
export function presentItem(view: TunnelView, tunnels: TunnelManager) {
  const { url, protocol, forwards_to, domain } = view.tunnel;
  const policy = JSON.stringify(tunnels.policies.on(view.tunnel));
  return { url, url_part: tunnels.urlPartOf(view), protocol, forwards_to, domain, policy };
}

/**
 * A tunnel by itself, with how it is. Connections are not counted: the SDK (1.7.0) tells nothing of them on a
 * listener, and carries them past the agent unless there is a relay.
 */
export function presentDetail(view: TunnelView, tunnels: TunnelManager) {
  const { state, since, lastError } = view.status;
  return {
    ...presentItem(view, tunnels),
    status: state,
    since: since.toISOString(),
    last_error: lastError,
    created_at: view.tunnel.created_at,
  };
}
