import { UpstreamConfig } from '../action-config.ts';
import { parseConfig } from '../action-problems.ts';
import type { PreparedAction } from '../steps.ts';

/**
 * Tells the edge how to treat the upstream of the endpoint, which is an action of our own: agents add it for the options of
 * their tunnels.
 */
export function gatewayUpstream(config: unknown): PreparedAction {
  const upstream = parseConfig(UpstreamConfig, config ?? {});
  return {
    ends: false,
    on_http_request: () => (request) => {
      request.upstream = upstream;
      return undefined;
    },
  };
}
