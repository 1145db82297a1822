import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import {
  AgentRefusal,
  type BodyMember,
  type CreatedTunnel,
  callAgent,
  type TunnelDetail,
} from '../../agent/api-client.ts';
import { endpointAdvice } from '../../doctor/advice.ts';
import { messageOf, OperatorError } from '../../lib/errors.ts';
import { displayUpstream, parseUpstream } from '../../lib/network/upstream-address.ts';
import { printable } from '../../lib/terminal-text.ts';
import type { Settings } from '../../settings/agent-settings.ts';
import { jsonText, note, print, show } from '../output.ts';
import { agentSettings } from '../settings-place.ts';

interface JsonOption {
  json?: boolean;
}

export interface StartOptions extends JsonOption {
  protocol: string;
  domain?: string;
  policy?: string;
  binding?: string;
  appProtocol?: string;
  pooling?: boolean;
  metadata?: string;
  proxyProto?: string;
  [upstreamOption: string]: unknown;
}

/**
 * Starts a tunnel and prints its URL, with a note when its upstream will not work. One that is open already is left as it is.
 *
 * @throws {OperatorError} exit code 2 when the policy file is unusable, 1 when the agent refuses
 */
export async function startTunnel(forwardsTo: string, options: StartOptions): Promise<void> {
  const settings = agentSettings('api');
  const request = await requestFor(forwardsTo, options);
  const tunnel = await createTunnel(settings, request).catch(async (error: unknown) => {
    const present = await presentTunnel(settings, request, error);
    if (present === null) throw error;
    return { ...present, notice: 'this tunnel is open already' };
  });
  show(tunnel, options, urlText);
  noteOn(tunnel);
}

/** What the API takes for a tunnel; members that were not given are undefined. */
export type StartRequest = Record<string, unknown> & {
  protocol: string;
  forwards_to: string;
  domain: string | undefined;
};

/** @throws {OperatorError} exit code 2 when the policy file is unusable */
export async function requestFor(forwardsTo: string, options: StartOptions): Promise<StartRequest> {
  const { protocol, domain, policy, binding, appProtocol, pooling, metadata, proxyProto } = options;
  return {
    protocol,
    forwards_to: forwardsTo,
    domain,
    ...(policy !== undefined && { policy: await readPolicy(policy) }),
    ...{ binding, app_protocol: appProtocol, pooling, metadata, proxy_proto: proxyProto },
    ...upstreamOptionsIn(options),
  };
}

/** @throws {AgentRefusal} with what to do, where the agent's answer does not say it */
export async function createTunnel(settings: Settings, request: StartRequest): Promise<CreatedTunnel> {
  try {
    return await callAgent(settings, 'POST /tunnels', { body: request });
  } catch (error) {
    if (!(error instanceof AgentRefusal) || !error.body.error_code.startsWith('ERR_NGROK_')) throw error;
    const { protocol, domain } = request;
    const advice = endpointAdvice(error.body.error_code, { protocol, domain: domain ?? 'device342.example.com' });
    if (advice === null) throw error;
    throw new AgentRefusal(`${error.message}; ${advice}`, error.exitCode, error.body);
  }
}

export const urlText = ({ url, forwards_to }: Pick<CreatedTunnel, 'url' | 'forwards_to'>): string =>
  `${url} -> ${forwards_to}`;

/** Says on standard error what will not work. */
export function noteOn({ notice }: Pick<CreatedTunnel, 'notice'>): void {
  if (notice !== undefined) note(printable(`device-agent: note: ${notice}`));
}

/** The tunnel that keeps a request from its domain, if it is the one that the request asks for; else null. */
async function presentTunnel(
  settings: Settings,
  { domain: _, ...wanted }: StartRequest,
  error: unknown,
): Promise<TunnelDetail | null> {
  if (!(error instanceof AgentRefusal) || error.body.error_code !== 'ERR_AGENT_DOMAIN_IN_USE') return null;
  const { domain = '' } = error.body.details;
  // Not found: the agent's own domain.
  const present = await callAgent(settings, 'GET /tunnels/{url_part}', { url_part: domain }).catch(() => null);
  if (present === null) return null;
  const shown: Record<string, unknown> = { ...present, policy: JSON.parse(present.policy) };
  const same = { ...wanted, forwards_to: displayUpstream(parseUpstream(wanted.forwards_to)) };
  const isSame = Object.entries(same).every(
    ([member, value]) => value === undefined || isDeepStrictEqual(shown[member], value),
  );
  return isSame ? present : null;
}

/**
 * Changes what a tunnel forwards to, or its policy; its URL stays.
 *
 * @throws {OperatorError} exit code 2 when there is nothing to change or the policy file is unusable, 1 when the agent refuses
 */
export async function changeTunnel(
  name: string,
  options: JsonOption & Record<string, unknown> & { forwardsTo?: string; policy?: string; defaultPolicies?: boolean },
): Promise<void> {
  const { forwardsTo, policy, defaultPolicies } = options;
  if (policy !== undefined && defaultPolicies) throw new OperatorError('give --policy or --default-policies', 2);
  const change = {
    ...(forwardsTo !== undefined && { forwards_to: forwardsTo }),
    ...(policy !== undefined && { policy: await readPolicy(policy) }),
    ...(defaultPolicies && { policy: null }),
    ...upstreamOptionsIn(options),
  };
  if (Object.keys(change).length === 0)
    throw new OperatorError('nothing to change: give --forwards-to, --policy, --default-policies or an option', 2);
  const tunnel = await callAgent(agentSettings('api'), 'PATCH /tunnels/{url_part}', { url_part: name, body: change });
  show(tunnel, options, urlText);
  if (tunnel.status === 'degraded')
    note(printable(`device-agent: note: ${tunnel.last_error?.message}; clients get errors until that is mended`));
  for (const warning of tunnel.policy_warnings ?? []) note(printable(`device-agent: note: policy: ${warning}`));
}

/** The members of the API for the options that were given; `default` resets one. The API checks the values. */
function upstreamOptionsIn(options: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const given = Object.keys(CHANGEABLE_OPTION_NAMES).map((member) => {
    const value = options[member.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase())];
    return [member, typeof value === 'string' ? memberValue(member, value) : value] as const;
  });
  return Object.fromEntries(given.filter(([, value]) => value !== undefined));
}

function memberValue(member: string, text: string): unknown {
  if (text === 'default') return null;
  // The agent runs in another folder.
  if (member === 'upstream_tls_ca_file') return resolve(text);
  return /^(?:\d+|true|false)$/.test(text) ? JSON.parse(text) : text;
}

export async function showTunnel(name: string, options: JsonOption): Promise<void> {
  const tunnel = await callAgent(agentSettings('api'), 'GET /tunnels/{url_part}', { url_part: name });
  show(tunnel, options, describe);
}

type ChangeableOption = Exclude<BodyMember<'PATCH /tunnels/{url_part}'>, 'policy' | 'forwards_to'>;
type FixedOption = Exclude<
  BodyMember<'POST /tunnels'>,
  BodyMember<'PATCH /tunnels/{url_part}'> | 'protocol' | 'domain'
>;

const CHANGEABLE_OPTION_NAMES: Readonly<Record<ChangeableOption, string>> = {
  max_connections: 'Connections',
  host_header: 'Host header',
  rewrite_redirects: 'Redirects',
  response_timeout: 'Answers in',
  upstream_tls_verify: 'Verify TLS',
  upstream_tls_ca_file: 'CA file',
  upstream_tls_server_name: 'Server name',
  upstream_tls_min_version: 'Lowest TLS',
  bandwidth: 'Bandwidth',
};
const OPTION_NAMES: Readonly<Record<FixedOption | ChangeableOption, string>> = {
  binding: 'Binding',
  app_protocol: 'Speaks',
  pooling: 'Pooling',
  metadata: 'Metadata',
  proxy_proto: 'PROXY',
  ...CHANGEABLE_OPTION_NAMES,
};

function describe(tunnel: TunnelDetail): string {
  const error = tunnel.last_error;
  const rows = [
    ['URL', tunnel.url],
    ...(tunnel.domain_url ? [['By name', tunnel.domain_url]] : []),
    ['Status', `${tunnel.status} since ${tunnel.since}`],
    ['Forwards to', `${tunnel.forwards_to} (${tunnel.protocol})`],
    ...optionRows(tunnel),
    ['Upstream', upstreamText(tunnel)],
    ...(tunnel.traffic ? [['Traffic', trafficText(tunnel.traffic)]] : []),
    ['Created', tunnel.created_at],
    ...(error ? [['Last error', [error.code, error.message].filter(Boolean).join(' ')]] : []),
    ...(tunnel.policy_warnings ?? []).map((warning) => ['Warning', warning]),
    ['Policy', tunnel.policy],
  ];
  return rows.map(([label, value]) => `${`${label}:`.padEnd(13)}${value}`).join('\n');
}

function optionRows(tunnel: TunnelDetail): [string, string][] {
  const shown = new Map(Object.entries(tunnel));
  return Object.entries(OPTION_NAMES).flatMap(([option, name]) => {
    const value = shown.get(option);
    return value === undefined ? [] : [[name, String(value)]];
  });
}

export async function deleteTunnel(name: string, options: JsonOption): Promise<void> {
  await callAgent(agentSettings('api'), 'DELETE /tunnels/{url_part}', { url_part: name });
  if (options.json) print(jsonText({ deleted: name }));
}

function upstreamText({ upstream: { state, since, checked_at } }: TunnelDetail): string {
  return checked_at === null
    ? 'not checked yet'
    : `${state.replace('_', ' ')} since ${since}, checked at ${checked_at}`;
}

function trafficText({ requests, bytes_in, bytes_out, last_at }: NonNullable<TunnelDetail['traffic']>): string {
  return `${requests} requests, ${bytes_in} bytes in, ${bytes_out} bytes out${last_at ? `, last at ${last_at}` : ''}`;
}

async function readPolicy(file: string): Promise<unknown> {
  let policy: unknown;
  try {
    // JSON is YAML, but the parser of JSON names the place of an error better.
    const text = readFileSync(file, 'utf8');
    policy = file.endsWith('.json') ? JSON.parse(text) : (await import('yaml')).parse(text);
  } catch (error) {
    throw new OperatorError(`cannot use the policy file ${file}: ${messageOf(error)}`, 2);
  }
  if (policy !== null) return policy;
  const remedy = 'write {} for a policy without rules, or leave out --policy for the default policies';
  throw new OperatorError(`cannot use the policy file ${file}: it has no policy; ${remedy}`, 2);
}
