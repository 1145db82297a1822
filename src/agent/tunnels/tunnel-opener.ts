import { ApiError } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import {
  defaultsFor,
  isLegacy,
  type PolicyInput,
  type TrafficPolicyDocument,
  toTrafficPolicy,
  withOriginalPlaces,
} from '../../traffic-policy/document.ts';
import type { Connector, Endpoint } from '../connectors/connector.ts';
import { AgentError } from '../errors/agent-error.ts';
import type { TrafficCounters } from '../upstreams/traffic-counters.ts';
import { displayUpstream } from '../upstreams/upstream.ts';
import type { PreparedUpstream, UpstreamDialer } from '../upstreams/upstream-dialer.ts';
import type { TunnelRequest } from './tunnel.ts';

/** Binds tunnels: prepares the upstream, applies the policy, opens the endpoint. */
export class TunnelOpener {
  constructor(
    private readonly connector: Connector,
    private readonly dialer: UpstreamDialer,
    private readonly defaults: () => PolicyInput,
    private readonly log: Log,
  ) {}

  /** @throws {ApiError} as the connector's open() does, or 400 when the upstream or the policy is not allowed */
  async open(request: TunnelRequest, traffic: TrafficCounters): Promise<Endpoint> {
    for (;;) {
      const defaults = this.defaults();
      const endpoint = await this.#openOnce(request, traffic, defaults);
      await requireUrl(endpoint);
      if (request.policy || defaults === this.defaults()) return endpoint;
      // The default policies were reloaded meanwhile: with the old ones, the tunnel could admit clients it should not.
      await endpoint.close();
    }
  }

  async #openOnce(
    { protocol, forwards_to, domain, policy, ...options }: TunnelRequest,
    traffic: TrafficCounters,
    defaults: PolicyInput,
  ): Promise<Endpoint> {
    const trafficPolicy = policy ? toTrafficPolicy(policy, protocol) : defaultsFor(protocol, defaults);
    const upstream = this.dialer.prepare(forwards_to, { protocol, ...options }, traffic);
    try {
      const endpoint = await this.connector.open({
        protocol,
        ...(domain && { domain }),
        upstream,
        forwardsTo: displayUpstream(forwards_to),
        trafficPolicy,
        options,
      });
      return this.#withUpstream(endpoint, upstream);
    } catch (error) {
      await upstream.release();
      throw withPlacesOf(policy ?? defaults, trafficPolicy, error);
    }
  }

  /** The same endpoint; when it is closed or has ended, nothing is left of what the agent carries for it. */
  #withUpstream(endpoint: Endpoint, upstream: PreparedUpstream): Endpoint {
    const { url, ended, watchRequests } = endpoint;
    void ended
      .then(() => upstream.release())
      .catch((err: unknown) => this.log.warn({ err, url }, 'upstream relay could not be closed'));
    const close = () => endpoint.close().finally(() => upstream.release());
    return { url, ended, close, ...(watchRequests && { watchRequests }) };
  }
}

/** The gateway only knows the policy in today's shape; its author may have written another one. */
function withPlacesOf(policy: PolicyInput, sent: TrafficPolicyDocument, error: unknown): unknown {
  if (!(error instanceof ApiError) || !isLegacy(policy)) return error;
  const translate = (text: string) => withOriginalPlaces(text, sent, policy);
  const details = Object.entries(error.details).map(([place, problem]) => [translate(place), translate(problem)]);
  if (details.every(([place = '']) => place in error.details)) return error;
  return new ApiError(error.status, error.code, translate(error.message), {
    details: Object.fromEntries(details),
    cause: error,
  });
}

/** Tunnels are kept and found by their URL, and a file with an invalid one would count as damaged. */
async function requireUrl({ url, close }: Endpoint): Promise<void> {
  if (URL.canParse(url)) return;
  await close();
  const named = JSON.stringify(url.slice(0, 100));
  throw new AgentError('ERR_AGENT_GATEWAY_REFUSED', `invalid endpoint URL from the gateway: ${named}`);
}
