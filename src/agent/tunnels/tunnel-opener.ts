import { ApiError } from '../../lib/errors.ts';
import {
  defaultsFor,
  isLegacy,
  type PolicyInput,
  type TrafficPolicyDocument,
  withOriginalPlaces,
} from '../../traffic-policy/document.ts';
import type { Connector, Endpoint } from '../connectors/connector.ts';
import { AgentError } from '../errors/agent-error.ts';
import type { TrafficCounters } from '../upstreams/traffic-counters.ts';
import { displayUpstream } from '../upstreams/upstream.ts';
import type { UpstreamDialer } from '../upstreams/upstream-dialer.ts';
import type { TunnelSpec } from './tunnel-spec.ts';

/** A tunnel's endpoint together with what the agent keeps for it. */
export interface OpenTunnel {
  endpoint: Endpoint;
  /** Unbinds the endpoint, then ends what the agent carries for it. */
  close(): Promise<void>;
  /** Ends what the agent carries for an endpoint that no longer exists. */
  release(): Promise<void>;
}

/** Binds tunnels: prepares the upstream, applies the policy, opens the endpoint. */
export class TunnelOpener {
  constructor(
    private readonly connector: Connector,
    private readonly dialer: UpstreamDialer,
    private readonly defaults: () => PolicyInput,
  ) {}

  /** @throws {ApiError} as the connector's open() does, or 400 when the upstream is not allowed */
  async open(spec: TunnelSpec, traffic: TrafficCounters): Promise<OpenTunnel> {
    for (;;) {
      const defaults = this.defaults();
      const open = await this.#openOnce({ ...spec, traffic }, defaults);
      await requireUrl(open);
      if (spec.trafficPolicy !== null || defaults === this.defaults()) return open;
      // The default policies were reloaded meanwhile: with the old ones, the tunnel could admit clients it should not.
      await open.close();
    }
  }

  async #openOnce(
    { protocol, upstream, domain, trafficPolicy, policy, traffic }: TunnelSpec & { traffic: TrafficCounters },
    defaults: PolicyInput,
  ) {
    const prepared = this.dialer.prepare(upstream, protocol, traffic);
    const release = () => prepared.release();
    const sent = trafficPolicy ?? defaultsFor(protocol, defaults);
    try {
      const endpoint = await this.connector.open({
        protocol,
        ...(domain !== null && { domain }),
        upstream: prepared,
        forwardsTo: displayUpstream(upstream),
        trafficPolicy: sent,
      });
      return { endpoint, release, close: () => endpoint.close().finally(release) };
    } catch (error) {
      await release();
      throw withPlacesOf(policy ?? defaults, sent, error);
    }
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
async function requireUrl({ endpoint: { url }, close }: OpenTunnel): Promise<void> {
  if (URL.canParse(url)) return;
  await close();
  const named = JSON.stringify(url.slice(0, 100));
  throw new AgentError('ERR_AGENT_GATEWAY_REFUSED', `invalid endpoint URL from the gateway: ${named}`);
}
