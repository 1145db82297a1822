import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { messageOf, OperatorError } from '../../lib/errors.ts';
import { JsonTextError, parseJson } from '../../lib/json-text.ts';
import { inPlainWords } from '../../lib/plain-words.ts';
import { type PolicyInput, toTrafficPolicy } from '../../traffic-policy/document.ts';
import { problemList } from './problems.ts';
import { domainOf, StoredTunnel, type Tunnel, TunnelRequest } from './tunnel.ts';

/** A tunnel to be made, with the domain that identifies it. */
export type ImportedTunnel = TunnelRequest & { domain: string };

export interface ImportRules {
  /** A policy that equals these is none of the tunnel's own. */
  defaultPolicies: PolicyInput;
  /** Domains that no tunnel may take: the agent's own. */
  reservedDomains: readonly string[];
}

/** What `tunnels.json` and an export hold. */
const OwnFile = z.object({ version: z.literal(1), tunnels: z.array(StoredTunnel) });
/** What ngrok's sample agent in Python keeps: a tunnel's particulars under its URL. */
const SampleFile = z.record(z.string(), z.record(z.string(), z.unknown()));

/**
 * Reads the tunnels that are to be imported: from an export, a `tunnels.json`, or the file of ngrok's sample agent.
 *
 * @param source names the file in errors
 * @throws {OperatorError} exit code 2, naming everything that is wrong with any of the tunnels
 */
export function parseTunnels(text: string, source: string, rules: ImportRules): ImportedTunnel[] {
  const problems: string[] = [];
  const tunnels: ImportedTunnel[] = [];
  for (const { name, request } of requestsIn(text, source)) {
    const found = check(request, rules);
    if (!Array.isArray(found)) tunnels.push(found);
    else problems.push(...found.map((problem) => `${name}: ${problem}`));
  }
  const seen = new Set<string>();
  for (const { domain } of tunnels) {
    if (seen.has(domain)) problems.push(`${domain}: it is there more than once`);
    seen.add(domain);
  }
  if (problems.length === 0) return tunnels;
  const list = problems.map((problem) => `\n  ${problem}`).join('');
  throw new OperatorError(`nothing was imported from ${source}, as it cannot be used as a whole:${list}`, 2);
}

/** Whether a tunnel is already what is to be imported. */
export function isSameTunnel(tunnel: Tunnel, imported: ImportedTunnel): boolean {
  const { id: _id, url: _url, created_at: _created, ...kept } = tunnel;
  return isDeepStrictEqual(withoutNull(kept), withoutNull(imported));
}

function requestsIn(text: string, source: string): { name: string; request: unknown }[] {
  let content: unknown;
  try {
    content = parseJson(text);
  } catch (error) {
    const problem = error instanceof JsonTextError ? `not JSON, ${error.message}` : messageOf(error);
    throw new OperatorError(`${source} cannot be imported: ${problem}`, 2);
  }
  const own = OwnFile.safeParse(content, { error: inPlainWords });
  if (own.success) return own.data.tunnels.map(ownRequest);
  if (z.object({ tunnels: z.array(z.unknown()) }).safeParse(content).success) {
    throw new OperatorError(`${source} cannot be imported: ${problemList(own.error).join('; ')}`, 2);
  }
  const sample = SampleFile.safeParse(content);
  if (sample.success) return Object.entries(sample.data).map(([url, details]) => sampleRequest(url, details));
  throw new OperatorError(
    `${source} cannot be imported: it is neither an export of device-agent, ` +
      'nor an object of URLs and their particulars as the sample agent in Python keeps it',
    2,
  );
}

function ownRequest({ id: _id, url, created_at: _created, ...request }: Tunnel) {
  return { name: url, request };
}

/** Keeps to what makes a tunnel; the sample leaves what is usual out, and keeps the policy as text. */
function sampleRequest(url: string, { protocol, forwards_to, domain, policy }: Record<string, unknown>) {
  const { protocol: scheme } = URL.canParse(url) ? new URL(url) : { protocol: '' };
  const known = protocol ?? (scheme === 'https:' ? 'http' : scheme.replace(/:$/, ''));
  const host = scheme === '' ? domain : domainOf(url, String(known));
  return {
    name: url,
    request: { protocol: known, forwards_to, domain: domain ?? host, policy: parseText(policy) },
  };
}

/** @returns the text itself when it is no JSON, for the schema to refuse */
function parseText(policy: unknown): unknown {
  if (typeof policy !== 'string') return policy;
  try {
    return parseJson(policy);
  } catch {
    return policy;
  }
}

/** @returns the tunnel, or everything that is wrong with it */
function check(request: unknown, { defaultPolicies, reservedDomains }: ImportRules): ImportedTunnel | string[] {
  const parsed = TunnelRequest.safeParse(request, { error: inPlainWords });
  if (!parsed.success) return problemList(parsed.error);
  const { domain, policy, protocol } = parsed.data;
  if (!domain) return ['domain: a hostname is needed'];
  if (reservedDomains.includes(domain)) return [`domain: ${domain} is the agent's own domain`];
  if (!policy || isDeepStrictEqual(policy, defaultPolicies)) return { ...parsed.data, domain, policy: null };
  try {
    toTrafficPolicy(policy, protocol);
  } catch (error) {
    return [`policy: ${messageOf(error)}`];
  }
  return { ...parsed.data, domain };
}

function withoutNull(members: object): object {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== null && value !== undefined));
}
