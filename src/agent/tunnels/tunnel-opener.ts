import { messageOf } from '../../lib/errors.ts';
import { inPlainWords } from '../../lib/plain-words.ts';
import {
  defaultsFor,
  PolicyInput,
  type TrafficPolicyDocument,
  toTrafficPolicy,
} from '../../traffic-policy/document.ts';
import { type Connector, type Endpoint, TUNNEL_PROTOCOLS, type TunnelProtocol } from '../connectors/connector.ts';
import { AgentError } from '../errors/agent-error.ts';
import { parseUpstream, type Upstream } from '../upstreams/upstream.ts';
import type { UpstreamDialer } from '../upstreams/upstream-dialer.ts';
import { problemsOf } from './problems.ts';
import type { Tunnel } from './tunnel.ts';

/** What opening takes of a tunnel, also of one that does not exist yet. */
export interface TunnelSpec extends Pick<Tunnel, 'protocol' | 'forwards_to' | 'policy'> {
  /** Left out, the gateway chooses. */
  domain?: string;
}

/** A tunnel's endpoint together with what the agent keeps for it. */
export interface OpenTunnel {
  endpoint: Endpoint;
  /** Unbinds the endpoint, then ends what the agent carries for it. */
  close(): Promise<void>;
  /** For an endpoint that is gone already. */
  release(): Promise<void>;
}

/** Binds tunnels: upstream made ready, policy in today's shape, endpoint opened. */
export class TunnelOpener {
  constructor(
    private readonly connector: Connector,
    private readonly dialer: UpstreamDialer,
    private readonly defaults: () => PolicyInput,
  ) {}

  /**
   * The policy that is in force on a tunnel.
   *
   * @throws {ApiError} 400 when the tunnel's own policy is not valid or does not suit its protocol
   */
  trafficPolicy({ policy, protocol }: Pick<TunnelSpec, 'policy' | 'protocol'>): TrafficPolicyDocument {
    const known = knownProtocol(protocol);
    return policy === null ? defaultsFor(known, this.defaults()) : toTrafficPolicy(validPolicy(policy), known);
  }

  /** @throws {ApiError} as the connector's open() does, or 400 for what this version finds fault with */
  async open(spec: TunnelSpec): Promise<OpenTunnel> {
    for (;;) {
      const defaults = this.defaults();
      const open = await this.#openOnce(spec);
      await requireUrl(open);
      if (spec.policy !== null || defaults === this.defaults()) return open;
      // Others came in force meanwhile: with the old ones, the tunnel might let in whom it no longer should.
      await open.close();
    }
  }

  async #openOnce(spec: TunnelSpec): Promise<OpenTunnel> {
    const protocol = knownProtocol(spec.protocol);
    const trafficPolicy = this.trafficPolicy(spec);
    const upstream = await this.dialer.prepare(validUpstream(spec.forwards_to), protocol);
    const release = () => upstream.release();
    try {
      const endpoint = await this.connector.open({
        protocol,
        ...(spec.domain !== undefined && { domain: spec.domain }),
        forwardTo: upstream.forwardTo,
        forwardsTo: spec.forwards_to,
        trafficPolicy,
      });
      return { endpoint, release, close: () => endpoint.close().finally(release) };
    } catch (error) {
      await release();
      throw error;
    }
  }
}

/** The tunnel is kept and found by its URL: a file on the disk with anything else would count as damaged. */
async function requireUrl({ endpoint: { url }, close }: OpenTunnel): Promise<void> {
  if (URL.canParse(url)) return;
  await close();
  const named = JSON.stringify(url.slice(0, 100));
  throw new AgentError('ERR_AGENT_GATEWAY_REFUSED', `the gateway named the endpoint ${named}, which is no URL`);
}

/* A tunnel from the disk may have been written by a version that allowed what this one does not. */

function knownProtocol(protocol: string): TunnelProtocol {
  const known = TUNNEL_PROTOCOLS.find((candidate) => candidate === protocol);
  if (known) return known;
  throw refusal('protocol', `this version of device-agent knows no protocol ${JSON.stringify(protocol)}`);
}

function validPolicy(policy: object): PolicyInput {
  const parsed = PolicyInput.safeParse(policy, { error: inPlainWords });
  if (parsed.success) return parsed.data;
  const problems = Object.fromEntries(
    Object.entries(problemsOf(parsed.error)).map(([place, problem]) => [`policy.${place}`, problem]),
  );
  const [[place, problem] = ['policy', 'it is not valid']] = Object.entries(problems);
  throw new AgentError(
    'ERR_AGENT_POLICY_NOT_APPLICABLE',
    `${place}: ${problem}; delete the tunnel and create it with a policy that this version accepts`,
    { details: problems },
  );
}

function validUpstream(forwardsTo: string): Upstream {
  try {
    return parseUpstream(forwardsTo);
  } catch (error) {
    throw refusal('forwards_to', messageOf(error), error);
  }
}

function refusal(member: string, problem: string, cause?: unknown): AgentError {
  return new AgentError('ERR_AGENT_INVALID_REQUEST', `${member}: ${problem}`, {
    details: { [member]: problem },
    cause,
  });
}
