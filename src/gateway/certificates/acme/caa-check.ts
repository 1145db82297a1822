import type { CaaRecord } from 'node:dns';
import { IssueError } from '../issuing/certificate-issuer.ts';
import type { DnsLookup } from '../issuing/dns-check.ts';

/**
 * The validation methods that CAA records (RFC 8659) allow the certificate authority (RFC 8657, section 4).
 *
 * @param identities the CA's names in CAA records, from its directory; without any, nothing is checked
 * @throws {IssueError} `DNS_ERROR` when they allow no method; `INTERNAL_ERROR` when a lookup failed
 */
export async function allowedByCaa<M extends string>(
  domain: string,
  identities: readonly string[],
  methods: readonly M[],
  lookup: DnsLookup,
): Promise<readonly M[]> {
  if (identities.length === 0) return methods;
  const isWildcard = domain.startsWith('*.');
  const { owner, records } = await relevantRecords(domain.replace(/^\*\./, ''), lookup);
  const values = issuers(records, isWildcard);
  if (values === null) return methods;
  const ours = values.map(parse).filter(({ issuer }) => identities.includes(issuer));
  const allowed = methods.filter((method) => ours.some((value) => value.methods?.includes(method) ?? true));
  if (allowed.length > 0) return allowed;
  const found = values.map((value) => JSON.stringify(value)).join(', ');
  const wanted = ours.length > 0 ? `${methods.join(' or ')} for ${identities[0]}` : String(identities[0]);
  throw new IssueError('DNS_ERROR', `The CAA record of ${owner} must allow ${wanted}. Found: ${found}.`);
}

/** The records of the closest name, upwards, that has any (RFC 8659, section 3). */
async function relevantRecords(domain: string, lookup: DnsLookup): Promise<{ owner: string; records: CaaRecord[] }> {
  const labels = domain.split('.');
  for (let depth = 0; depth < labels.length; depth += 1) {
    const owner = labels.slice(depth).join('.');
    const records = await lookup.caa(owner);
    if (records.length > 0) return { owner, records };
  }
  return { owner: domain, records: [] };
}

/** The values that apply; null without a restriction. For wildcards, `issuewild` takes precedence. */
function issuers(records: readonly CaaRecord[], isWildcard: boolean): string[] | null {
  const wild = records.flatMap(({ issuewild }) => (issuewild === undefined ? [] : [issuewild]));
  if (isWildcard && wild.length > 0) return wild;
  const plain = records.flatMap(({ issue }) => (issue === undefined ? [] : [issue]));
  return plain.length > 0 ? plain : null;
}

/** `issuer; name=value; …`; an empty issuer allows no CA. */
function parse(value: string): { issuer: string; methods: string[] | null } {
  const [issuer = '', ...parameters] = value.split(';').map((part) => part.trim());
  const methods = parameters.find((parameter) => parameter.startsWith('validationmethods='));
  return { issuer: issuer.toLowerCase(), methods: methods?.slice('validationmethods='.length).split(',') ?? null };
}
