import { z } from 'zod';
import { messageOf } from '../../lib/errors.ts';
import { canonicalHostname, isHostname, MAX_HOSTNAME } from '../../lib/network/hostname-grammar.ts';
import { isAddressOfUrl } from '../../lib/network/ip-address.ts';
import { parseUpstream, type Upstream } from '../../lib/network/upstream-address.ts';
import { problemsOf, validationMessage } from '../../lib/validation-messages.ts';
import { PolicyInput } from '../../traffic-policy/document.ts';
import {
  CHANGEABLE_OPTIONS,
  ChangeableOptions,
  EndpointOptions,
  HTTP_OPTIONS,
  TUNNEL_PROTOCOLS,
  type TunnelProtocol,
  UPSTREAM_TLS,
} from '../connectors/connector.ts';
import { AgentError } from '../errors/agent-error.ts';

const ForwardsTo = z
  .union([z.string(), z.number().meta({ type: 'integer', minimum: 1, maximum: 65_535 })], {
    error: 'must be a port, host:port, http(s)://host:port or unix:/path',
  })
  .meta({ description: 'A port of this device, host:port, http(s)://host:port or unix:/path.' })
  .transform((input, context): Upstream => {
    try {
      return parseUpstream(input);
    } catch (error) {
      context.addIssue({ code: 'custom', message: messageOf(error) });
      return z.NEVER;
    }
  });

const Domain = z.string({ error: 'must be a hostname' }).transform((input, context) => {
  // As a gateway without a domain has chosen it.
  if (hasAddressAndPort(input)) return input.toLowerCase();
  const [host = '', port, ...rest] = input.split(':');
  const hostname = canonicalHostname(host);
  const problem =
    urlProblem(input) ?? (rest.length > 0 ? 'not a hostname' : (hostnameProblem(hostname) ?? portProblem(port)));
  if (problem === null) return port === undefined ? hostname : `${hostname}:${port}`;
  context.addIssue({ code: 'custom', message: problem });
  return z.NEVER;
});

const PROTOCOL =
  'http: served as https, and http redirects; tcp: a port at the gateway, which the tunnel keeps; tls: TLS passes through to the upstream.';

const DOMAIN =
  'A hostname; for tcp host:port. On a device that has joined a site, a single label such as camera becomes camera.<site>, or camera-<name>.<site> if that belongs to somebody else. With the embedded gateway, it becomes camera.localhost. No domain becomes a random name there; otherwise the gateway chooses.';

const TunnelMembers = z.strictObject({
  protocol: z
    .enum(TUNNEL_PROTOCOLS, { error: `must be one of ${TUNNEL_PROTOCOLS.join(', ')}` })
    .nullish()
    .meta({ default: 'http', description: PROTOCOL })
    .transform((protocol) => protocol ?? 'http'),
  forwards_to: ForwardsTo,
  domain: Domain.nullish().meta({ description: DOMAIN }),
  policy: PolicyInput.nullish().describe('A traffic policy; without it, the default policies apply.'),
  ...EndpointOptions.shape,
});

/** A combination of members that makes no sense. Members that did not parse are missing. */
interface Conflict {
  member: keyof z.output<typeof TunnelMembers>;
  problem: string;
  isIn: (request: Partial<z.output<typeof TunnelMembers>>) => boolean;
}

const CONFLICTS: readonly Conflict[] = [
  {
    member: 'domain',
    problem: 'a tcp tunnel needs host:port, or no domain to let the gateway choose both',
    isIn: ({ protocol, domain }) => protocol === 'tcp' && isText(domain) && !domain.includes(':'),
  },
  {
    member: 'domain',
    problem: 'only tcp tunnels may have a port',
    isIn: ({ protocol, domain }) =>
      protocol !== 'tcp' && isText(domain) && domain.includes(':') && !hasAddressAndPort(domain),
  },
  {
    member: 'domain',
    problem: 'with the binding internal, a domain below .internal is needed, such as camera.internal',
    isIn: ({ binding, domain }) => binding === 'internal' && !/\.internal(?::\d+)?$/.test(domain ?? ''),
  },
  {
    member: 'forwards_to',
    problem: 'only http tunnels support http:// and https://: give host:port',
    isIn: ({ protocol, forwards_to }) => protocol !== 'http' && schemeOf(forwards_to) !== null,
  },
  {
    member: 'app_protocol',
    problem: 'only http tunnels support it: leave it out',
    isIn: ({ protocol, app_protocol }) => protocol !== 'http' && app_protocol !== undefined,
  },
  ...HTTP_OPTIONS.map(
    (member): Conflict => ({
      member,
      problem: 'only http tunnels support it: leave it out',
      isIn: ({ protocol, [member]: option }) => protocol !== 'http' && option !== undefined,
    }),
  ),
  ...UPSTREAM_TLS.map(
    (member): Conflict => ({
      member,
      problem: 'only upstreams with https:// support it: leave it out, or forward to https://…',
      isIn: ({ protocol, forwards_to, [member]: option }) =>
        protocol === 'http' && forwards_to !== undefined && schemeOf(forwards_to) !== 'https' && option !== undefined,
    }),
  ),
  {
    member: 'proxy_proto',
    problem: 'not supported with https://, which would encrypt the PROXY header: leave it out, or use a tls tunnel',
    isIn: ({ proxy_proto, forwards_to }) => proxy_proto !== undefined && schemeOf(forwards_to) === 'https',
  },
];

/** Body of `POST /tunnels`; null counts as not sent. */
export const TunnelRequest = CONFLICTS.reduce(
  (members, { member, problem, isIn }) =>
    members.refine((request) => !isIn(request), { path: [member], error: problem, when: isObject }),
  TunnelMembers,
);
export type TunnelRequest = z.infer<typeof TunnelRequest>;

/** Body of `PATCH /tunnels/{url_part}`: what to change; an option that is null gets its default again. */
export const TunnelChange = z
  .strictObject({
    policy: PolicyInput.nullable().optional().describe('A traffic policy; null: the default policies apply.'),
    forwards_to: ForwardsTo.optional(),
    ...ChangeableOptions.shape,
  })
  .refine((change) => Object.keys(change).length > 0, {
    error: `needs policy, forwards_to or one of ${CHANGEABLE_OPTIONS.join(', ')}`,
    when: isObject,
  });
export type TunnelChange = z.infer<typeof TunnelChange>;

/** A stored one also has the {@link EndpointOptions} that were sent. */
export interface Tunnel {
  readonly id: string;
  /** This version writes one of {@link TUNNEL_PROTOCOLS}; later ones may support more. */
  readonly protocol: string;
  readonly forwards_to: string;
  /** Bound again after a restart: a hostname, for tcp `host:port`. */
  readonly domain: string;
  readonly url: string;
  /** As it was sent; null: the current default policies apply. */
  readonly policy: Readonly<Record<string, unknown>> | null;
  readonly created_at: string;
}

export type ChangedMembers = Pick<Tunnel, 'policy' | 'forwards_to'> & ChangeableOptions;

/**
 * Requires no more of a stored tunnel than listing it does, so that a stricter or older version loses no tunnels. The
 * members are checked when the tunnel is opened, where only that tunnel fails. Unknown members are kept.
 */
export const StoredTunnel: z.ZodType<Tunnel> = z.looseObject({
  id: z.string().min(1),
  protocol: z.string(),
  forwards_to: z.string(),
  domain: z.string(),
  url: z.string().refine((url) => URL.canParse(url), 'not a URL'),
  policy: z.record(z.string(), z.unknown()).nullable(),
  created_at: z.string(),
});

export const TUNNEL_STATES = ['online', 'connecting', 'offline', 'failed'] as const;
/**
 * `connecting`: not bound yet on this session; `offline`: the session is lost; `failed`: binding failed, it is retried.
 */
export type TunnelState = (typeof TUNNEL_STATES)[number];

export const SHOWN_STATES = ['online', 'degraded', 'connecting', 'offline', 'failed'] as const;
/** `degraded`: online, but the upstream accepts no connections. */
export type ShownState = (typeof SHOWN_STATES)[number];

export interface TunnelStatus<State = TunnelState> {
  state: State;
  since: Date;
  /** Why the last attempt failed; null while the tunnel is online. */
  lastError: { code: string | null; message: string } | null;
}

/** Stored tunnels are immutable, so each is parsed once. */
const requests = new WeakMap<Tunnel, TunnelRequest>();

/**
 * The request that would create a stored tunnel. A version that allowed what this one does not may have written it.
 *
 * @throws {ApiError} 400 when this version does not support it
 */
export function requestOf(tunnel: Tunnel): TunnelRequest {
  const { protocol, forwards_to, domain, policy } = tunnel;
  let request = requests.get(tunnel);
  if (request === undefined) {
    const known = knownProtocol(protocol);
    const valid = policy && validPolicy(policy);
    const upstream = validUpstream(forwards_to);
    const found = { protocol: known, forwards_to: upstream, domain, policy: valid, ...validOptions(tunnel) };
    const conflict = CONFLICTS.find(({ isIn }) => isIn(found));
    if (conflict) throw refusal(conflict.member, conflict.problem);
    request = found;
    requests.set(tunnel, request);
  }
  return request;
}

/** Without this, zod reports rules about two members only once all other problems are fixed. */
function isObject({ value }: { value: unknown }): boolean {
  return typeof value === 'object' && value !== null;
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}

function urlProblem(input: string): string | null {
  if (!/^[a-z]+:\/\//i.test(input)) return null;
  const host = URL.canParse(input) ? new URL(input).hostname : '';
  return `a URL is not a hostname: leave out ${input.slice(0, input.indexOf('//') + 2)}${host ? ` and give ${host}` : ''}`;
}

function hostnameProblem(host: string): string | null {
  if (/^\d{1,5}$/.test(host)) return 'a port alone is no domain: for tcp, give host:port or no domain';
  if (host.startsWith('*')) return 'wildcards are not supported: a tunnel has one hostname';
  if (host.length > MAX_HOSTNAME) return `a hostname has at most ${MAX_HOSTNAME} characters`;
  if (!isHostname(host, 'ends in a number')) {
    return 'not a hostname: labels have 1 to 63 letters, digits and inner hyphens, joined by dots';
  }
  return isHostname(host) ? null : 'IP addresses are not supported: use a hostname';
}

function portProblem(port: string | undefined): string | null {
  const isPort = port === undefined || (/^[1-9]\d{0,4}$/.test(port) && Number(port) <= 65535);
  return isPort ? null : 'the port must be a number from 1 to 65535';
}

function hasAddressAndPort(domain: string): boolean {
  const [, host = '', port] = /^(\[[0-9a-f:.]+\]|[0-9.]+):(\d{1,5})$/i.exec(domain) ?? [];
  return isAddressOfUrl(host) && portProblem(port) === null && URL.canParse(`https://${domain}`);
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

function validUpstream(forwardsTo: string): Upstream {
  try {
    return parseUpstream(forwardsTo);
  } catch (error) {
    throw refusal('forwards_to', messageOf(error), error);
  }
}

function validOptions(tunnel: Tunnel): EndpointOptions {
  const parsed = EndpointOptions.safeParse(tunnel, { error: validationMessage });
  if (parsed.success) return parsed.data;
  const [[member, problem] = ['options', 'not valid']] = Object.entries(problemsOf(parsed.error));
  throw refusal(member, `${problem}; delete the tunnel and create it again`, parsed.error);
}

function schemeOf(upstream: Upstream | undefined): 'http' | 'https' | null {
  return upstream?.kind === 'tcp' ? upstream.scheme : null;
}

function refusal(member: string, problem: string, cause?: unknown): AgentError {
  return new AgentError('ERR_AGENT_INVALID_REQUEST', `${member}: ${problem}`, {
    details: { [member]: problem },
    cause,
  });
}
