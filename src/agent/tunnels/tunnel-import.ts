import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { messageOf, OperatorError } from '../../lib/errors.ts';
import { JsonTextError, parseJson } from '../../lib/json-text.ts';
import { inPlainWords } from '../../lib/plain-words.ts';
import { type PolicyInput, toTrafficPolicy } from '../../traffic-policy/document.ts';
import { problemList } from './problems.ts';
import { domainOf, type Tunnel, TunnelRequest } from './tunnel.ts';
import { StoredTunnels, TUNNELS_VERSION } from './tunnel-store.ts';

/** A tunnel to be made, with the domain that identifies it. */
export type ImportedTunnel = TunnelRequest & { domain: string };

export interface ImportRules {
  /** A policy that equals these is none of the tunnel's own. */
  defaultPolicies: PolicyInput;
  /** Domains that no tunnel may take: the agent's own. */
  reservedDomains: readonly string[];
}

/** What tells `tunnels.json` and an export from others. */
const OwnFile = z.object({ tunnels: z.array(z.unknown()) });
/** Of a format that this version does not know. */
const NewerFile = z.object({ version: z.number().gt(TUNNELS_VERSION) });
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

/** In what a tunnel is not what is to be imported: names of members. */
export function differencesBetween(tunnel: Tunnel, imported: ImportedTunnel): string[] {
  const { id: _id, url: _url, created_at: _created, ...kept } = tunnel;
  const [there, wanted] = [withoutNull(kept), withoutNull(imported)];
  const members = new Set([...Object.keys(there), ...Object.keys(wanted)]);
  return [...members].filter((member) => !isDeepStrictEqual(there[member], wanted[member]));
}

function requestsIn(text: string, source: string): { name: string; request: unknown }[] {
  let content: unknown;
  try {
    content = parseJson(text);
  } catch (error) {
    const problem = error instanceof JsonTextError ? `not JSON, ${error.message}` : messageOf(error);
    throw new OperatorError(`${source} cannot be imported: ${problem}`, 2);
  }
  if (OwnFile.safeParse(content).success) return ownRequests(content, source);
  const sample = SampleFile.safeParse(content);
  if (sample.success) return Object.entries(sample.data).map(([url, details]) => sampleRequest(url, details));
  throw new OperatorError(
    `${source} cannot be imported: it is neither an export of device-agent, ` +
      'nor an object of URLs and their particulars as the sample agent in Python keeps it',
    2,
  );
}

function ownRequests(content: unknown, source: string) {
  const newer = NewerFile.safeParse(content);
  if (newer.success) {
    throw new OperatorError(
      `${source} cannot be imported: it is of a newer version of device-agent (format ${newer.data.version}, ` +
        `this one knows ${TUNNELS_VERSION}); install that version`,
      2,
    );
  }
  const own = StoredTunnels.safeParse(content, { error: inPlainWords });
  if (!own.success) {
    throw new OperatorError(`${source} cannot be imported: ${problemList(own.error).join('; ')}`, 2);
  }
  return own.data.tunnels.map(({ id: _id, url, created_at: _created, ...request }) => ({ name: url, request }));
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

function withoutNull(members: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== null && value !== undefined));
}
