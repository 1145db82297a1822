import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { messageOf, OperatorError } from '../../lib/errors.ts';
import { JsonTextError, parseJson } from '../../lib/json-text.ts';
import { displayUpstream } from '../../lib/network/upstream-address.ts';
import { problemList, validationMessage } from '../../lib/validation-messages.ts';
import { type PolicyInput, toTrafficPolicy } from '../../traffic-policy/document.ts';
import { domainOf } from '../connectors/connector.ts';
import { domainsFor, type Site } from './site-names.ts';
import { type Tunnel, TunnelRequest } from './tunnel.ts';
import { StoredTunnels, TUNNELS_VERSION } from './tunnels-file.ts';

/** A tunnel to create, with the domain that identifies it. */
export type ImportedTunnel = Omit<TunnelRequest, 'forwards_to'> & { forwards_to: string; domain: string };

export interface ImportRules {
  /** A policy that equals these is not stored as the tunnel's own. */
  defaultPolicies: PolicyInput;
  /** Domains that no tunnel may use: the agent's own. */
  reservedDomains: readonly string[];
  /** The site that completes labels; null or omitted: none. */
  site?: Site | null;
}

/** Identifies `tunnels.json` and exports. */
const OwnFile = z.object({ tunnels: z.array(z.unknown()) });
const NewerFile = z.object({ version: z.number().gt(TUNNELS_VERSION) });
/** The file of ngrok's sample agent in Python: details of tunnels by their URL. */
const SampleFile = z.record(z.string(), z.record(z.string(), z.unknown()));

/**
 * Reads the tunnels to import from an export, a `tunnels.json`, or the file of ngrok's sample agent.
 *
 * @throws {OperatorError} exit code 2, listing everything that is wrong with any of the tunnels
 */
export function parseTunnels(text: string, source: string, rules: ImportRules): ImportedTunnel[] {
  const problems: string[] = [];
  const tunnels: ImportedTunnel[] = [];
  for (const { name, request } of requestsIn(text, source)) {
    const found = checkTunnel(request, rules);
    if (!Array.isArray(found)) tunnels.push(found);
    else problems.push(...found.map((problem) => `${name}: ${problem}`));
  }
  const seen = new Set<string>();
  for (const { domain } of tunnels) {
    if (seen.has(domain)) problems.push(`${domain}: listed more than once`);
    seen.add(domain);
  }
  if (problems.length === 0) return tunnels;
  const list = problems.map((problem) => `\n  ${problem}`).join('');
  throw new OperatorError(`nothing was imported: ${source} has problems:${list}`, 2);
}

/** The tunnel as it is saved before it was ever online. The agent binds it at its start, which determines the final URL. */
export function storedTunnel({ protocol, domain, forwards_to, policy, ...more }: ImportedTunnel): Tunnel {
  const url = `${protocol === 'http' ? 'https' : protocol}://${domain}`;
  const created_at = new Date().toISOString();
  return { id: randomUUID(), protocol, forwards_to, domain, url, policy: policy ?? null, created_at, ...more };
}

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
    throw new OperatorError(`cannot import ${source}: ${problem}`, 2);
  }
  if (OwnFile.safeParse(content).success) return ownRequests(content, source);
  const sample = SampleFile.safeParse(content);
  if (sample.success) return Object.entries(sample.data).map(([url, details]) => sampleRequest(url, details));
  throw new OperatorError(
    `cannot import ${source}: it is neither an export of device-agent nor a file of ngrok's sample agent in Python`,
    2,
  );
}

function ownRequests(content: unknown, source: string) {
  const newer = NewerFile.safeParse(content);
  if (newer.success) {
    throw new OperatorError(
      `cannot import ${source}: a newer version of device-agent wrote it (format ${newer.data.version}, ` +
        `this version supports ${TUNNELS_VERSION}); install that version`,
      2,
    );
  }
  const own = StoredTunnels.safeParse(content, { error: validationMessage });
  if (!own.success) {
    throw new OperatorError(`cannot import ${source}: ${problemList(own.error).join('; ')}`, 2);
  }
  return own.data.tunnels.map(({ id: _id, url, created_at: _created, ...request }) => ({ name: url, request }));
}

/** Takes the members that make a tunnel. The sample leaves out defaults and keeps the policy as text. */
function sampleRequest(url: string, { protocol, forwards_to, domain, policy }: Record<string, unknown>) {
  const { protocol: scheme } = URL.canParse(url) ? new URL(url) : { protocol: '' };
  const known = protocol ?? (scheme === 'https:' ? 'http' : scheme.replace(/:$/, ''));
  const host = scheme === '' ? domain : domainOf(url, String(known));
  return {
    name: url,
    request: { protocol: known, forwards_to, domain: domain ?? host, policy: parseText(policy) },
  };
}

/** @returns the text itself when it is not JSON, for the schema to refuse */
function parseText(policy: unknown): unknown {
  if (typeof policy !== 'string') return policy;
  try {
    return parseJson(policy);
  } catch {
    return policy;
  }
}

/** @returns the tunnel, or everything that is wrong with it */
export function checkTunnel(
  request: unknown,
  { defaultPolicies, reservedDomains, site = null }: ImportRules,
): ImportedTunnel | string[] {
  const parsed = TunnelRequest.safeParse(request, { error: validationMessage });
  if (!parsed.success) return problemList(parsed.error);
  const { domain, policy, protocol } = parsed.data;
  if (!domain) return ['domain: must be a hostname'];
  const own = domainsFor({ protocol, domain }, site).find((each) => reservedDomains.includes(each));
  if (own !== undefined) return [`domain: ${own} is the agent's own domain`];
  const tunnel = { ...parsed.data, domain, forwards_to: displayUpstream(parsed.data.forwards_to) };
  if (!policy || isDeepStrictEqual(policy, defaultPolicies)) return { ...tunnel, policy: null };
  try {
    toTrafficPolicy(policy, protocol);
  } catch (error) {
    return [`policy: ${messageOf(error)}`];
  }
  return tunnel;
}

function withoutNull(members: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== null && value !== undefined));
}
