import { messageOf } from '../../lib/errors.ts';
import { validationMessage } from '../../lib/validation-messages.ts';
import { PolicyInput, type TrafficPolicyDocument, toTrafficPolicy } from '../../traffic-policy/document.ts';
import { TUNNEL_PROTOCOLS, type TunnelProtocol } from '../connectors/connector.ts';
import { AgentError } from '../errors/agent-error.ts';
import { parseUpstream, type Upstream } from '../upstreams/upstream.ts';
import { problemsOf } from './problems.ts';
import { ONLY_HTTP_HAS_SCHEMES, type Tunnel, type TunnelRequest } from './tunnel.ts';

/** What opening a tunnel needs, parsed; also for a tunnel that does not exist yet. */
export interface TunnelSpec {
  readonly protocol: TunnelProtocol;
  readonly upstream: Upstream;
  /** Null: the gateway chooses. */
  readonly domain: string | null;
  /** The tunnel's own policy in today's shape; null: the default policies apply. */
  readonly trafficPolicy: TrafficPolicyDocument | null;
  /** The same as it was sent. */
  readonly policy: PolicyInput | null;
}

/** @throws {ApiError} 400 when the policy does not suit the protocol */
export function specOfRequest({ protocol, forwards_to, domain, policy }: TunnelRequest): TunnelSpec {
  const trafficPolicy = policy ? toTrafficPolicy(policy, protocol) : null;
  return { protocol, upstream: forwards_to, domain: domain ?? null, trafficPolicy, policy: policy ?? null };
}

/**
 * Reads a tunnel from the disk. A version that allowed what this one does not may have written it.
 *
 * @throws {ApiError} 400 when this version does not support it
 */
export function specOfTunnel({ protocol, forwards_to, domain, policy }: Tunnel): TunnelSpec {
  const known = knownProtocol(protocol);
  const sent = policy === null ? null : validPolicy(policy);
  const trafficPolicy = sent && toTrafficPolicy(sent, known);
  return { protocol: known, upstream: validUpstream(forwards_to, known), domain, trafficPolicy, policy: sent };
}

function knownProtocol(protocol: string): TunnelProtocol {
  const known = TUNNEL_PROTOCOLS.find((candidate) => candidate === protocol);
  if (known) return known;
  throw refusal('protocol', `this version of device-agent does not support the protocol ${JSON.stringify(protocol)}`);
}

function validPolicy(policy: object): PolicyInput {
  const parsed = PolicyInput.safeParse(policy, { error: validationMessage });
  if (parsed.success) return parsed.data;
  const problems = Object.fromEntries(
    Object.entries(problemsOf(parsed.error)).map(([place, problem]) => [`policy.${place}`, problem]),
  );
  const [[place, problem] = ['policy', 'not valid']] = Object.entries(problems);
  throw new AgentError(
    'ERR_AGENT_POLICY_NOT_APPLICABLE',
    `${place}: ${problem}; delete the tunnel and create it with a policy that this version accepts`,
    { details: problems },
  );
}

function validUpstream(forwardsTo: string, protocol: TunnelProtocol): Upstream {
  const upstream = parsedUpstream(forwardsTo);
  const hasScheme = upstream.kind === 'tcp' && upstream.scheme !== null;
  if (hasScheme && protocol !== 'http') throw refusal('forwards_to', ONLY_HTTP_HAS_SCHEMES);
  return upstream;
}

function parsedUpstream(forwardsTo: string): Upstream {
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
