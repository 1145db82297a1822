import { maskUrl } from '../../../lib/masking/mask-url.ts';
import { withoutMapping } from '../../../lib/network/ip-address.ts';
import type { EdgeContext } from '../../context/gateway-context.ts';
import type { GatewayEndpoint } from '../../endpoints/online-endpoint.ts';

/** TLS edges count for the tunnels behind them. */
export type DeniedEndpoint = Pick<GatewayEndpoint, 'url'> & Partial<Pick<GatewayEndpoint, 'traffic'>>;

interface DeniedClient {
  readonly remoteAddress?: string | undefined;
}

interface DeniedRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly headers: { readonly host?: string | undefined };
  readonly socket: DeniedClient;
}

/** The policy of an endpoint, or an IP restriction, has denied a request. @param status null: its connection is closed */
export function noteDeniedRequest(
  { counters, activity }: Pick<EdgeContext, 'counters' | 'activity'>,
  { url }: Pick<GatewayEndpoint, 'url'>,
  req: DeniedRequest,
  status: number | null,
): void {
  counters.refusedByPolicy += 1;
  activity.sample('request_denied.v0', url, () => {
    const client_ip = withoutMapping(req.socket.remoteAddress ?? '');
    // Queries have tokens in them, and so have share links.
    const path = maskUrl((req.url ?? '').replace(/\?.*/s, ''));
    return { endpoint: url, method: req.method, host: req.headers.host, path, client_ip, status };
  });
}

/** The same before a request, or without any. */
export function noteDeniedConnection(
  { activity }: Pick<EdgeContext, 'activity'>,
  { url, traffic }: DeniedEndpoint,
  client: DeniedClient,
): void {
  traffic?.countRefusal(undefined, null);
  const describe = () => ({ endpoint: url, client_ip: withoutMapping(client.remoteAddress ?? '') });
  activity.sample('connection_denied.v0', url, describe);
}
