import { randomBytes } from 'node:crypto';
import { IssueError } from './certificate-issuer.ts';
import type { DnsLookup } from './dns-lookup.ts';

/** The expected targets of a domain's DNS records; null: the record is not needed. */
export interface RecordTargets {
  cname_target: string | null;
  /** Target of `_acme-challenge.<domain>`, for wildcards only. */
  acme_challenge_cname_target: string | null;
}

/** Longest chain of CNAMEs; resolvers have similar limits. */
const MAX_CHAIN = 8;

/**
 * Checks that the domain's traffic reaches this gateway, and for a wildcard, that its challenges do too. The gateway's own
 * names only need an address: behind NAT, the gateway does not know its public one.
 *
 * @throws {IssueError} `DNS_ERROR` with the wrong record, its expected and its current value;
 *   `INTERNAL_ERROR` when a lookup failed
 */
export async function checkRecords(domain: string, targets: RecordTargets, lookup: DnsLookup): Promise<void> {
  const { cname_target: traffic, acme_challenge_cname_target: challenge } = targets;
  if (traffic !== null) await checkTraffic(domain, traffic, lookup);
  if (traffic === null && challenge === null) await checkAddress(domain, lookup);
  if (challenge === null) return;
  const record = challengeRecord(domain);
  const found = await follow(record, challenge, lookup);
  if (found !== null) throw wrongRecord(record, challenge, found || 'no such record');
}

/** The name that a domain's DNS-01 challenge is looked up at (RFC 8555, section 8.4). */
export function challengeRecord(domain: string): string {
  return `_acme-challenge.${domain.replace(/^\*\./, '')}`;
}

async function checkTraffic(domain: string, target: string, lookup: DnsLookup): Promise<void> {
  // Any name below a wildcard will do; a random one is in no resolver's negative cache.
  const name = domain.replace(/^\*/, () => `check-${randomBytes(6).toString('hex')}`);
  const found = await follow(name, target, lookup);
  if (found === null) return;
  if (found !== '') throw wrongRecord(domain, target, found);
  const addresses = await lookup.addresses(name);
  if (addresses.length === 0) throw wrongRecord(domain, target, 'no such record');
  // A zone's apex can have no CNAME; providers then copy the target's addresses ("ALIAS", "flattening").
  const ours = new Set(await lookup.addresses(target));
  if (!addresses.every((address) => ours.has(address))) {
    throw wrongRecord(domain, target, `no CNAME but the addresses ${addresses.slice(0, 4).join(', ')}`);
  }
}

async function checkAddress(domain: string, lookup: DnsLookup): Promise<void> {
  const addresses = await lookup.addresses(domain);
  if (addresses.length > 0) return;
  throw new IssueError('DNS_ERROR', `The DNS record ${domain} must point to this gateway. Found: no address.`);
}

/** Follows CNAMEs from a name. Returns null at the target, '' without a CNAME, else a description of the chain. */
async function follow(name: string, target: string, lookup: DnsLookup): Promise<string | null> {
  const chain: string[] = [];
  let current = name;
  while (chain.length < MAX_CHAIN) {
    const [next] = await lookup.cname(current);
    if (next === undefined) return chain.length === 0 ? '' : `a CNAME to ${chain.join(', then to ')}`;
    current = normalize(next);
    if (current === normalize(target)) return null;
    chain.push(current);
  }
  return `an endless chain of CNAMEs, starting with ${chain.slice(0, 2).join(', then ')}`;
}

function normalize(name: string): string {
  return name.toLowerCase().replace(/\.$/, '');
}

function wrongRecord(record: string, target: string, found: string): IssueError {
  return new IssueError('DNS_ERROR', `The DNS record ${record} must be a CNAME to ${target}. Found: ${found}.`);
}
