import { randomBytes } from 'node:crypto';
import type { CaaRecord } from 'node:dns';
import { Resolver } from 'node:dns/promises';
import { IssueError } from './certificate-issuer.ts';

/** The expected targets of a domain's DNS records; null: the record is not needed. */
export interface RecordTargets {
  cname_target: string | null;
  /** Target of `_acme-challenge.<domain>`, for wildcards only. */
  acme_challenge_cname_target: string | null;
}

/** Longest chain of CNAMEs; resolvers have similar limits. */
const MAX_CHAIN = 8;

/** A record that a domain needs. Without a target, the name only needs an address. */
export interface NeededRecord {
  name: string;
  target: string | null;
  /** `traffic` leads clients to the gateway, `certificate` lets it prove that it may have a certificate. */
  purpose: 'traffic' | 'certificate';
}

interface RecordFinding {
  inPlace: boolean;
  found: string;
}

/**
 * The records that a domain needs: for its traffic, and for a wildcard, for its challenges. The gateway's own names only need
 * an address: behind NAT, the gateway does not know its public one.
 */
export function neededRecords(domain: string, targets: RecordTargets): NeededRecord[] {
  const { cname_target: traffic, acme_challenge_cname_target: challenge } = targets;
  const isOwn = traffic === null && challenge === null;
  return [
    ...(traffic !== null || isOwn ? [{ name: domain, target: traffic, purpose: 'traffic' as const }] : []),
    ...(challenge === null
      ? []
      : [{ name: challengeRecord(domain), target: challenge, purpose: 'certificate' as const }]),
  ];
}

/** @throws {IssueError} `INTERNAL_ERROR` when the lookup failed */
export function findRecord({ name, target, purpose }: NeededRecord, lookup: DnsLookup): Promise<RecordFinding> {
  if (target === null) return findAddress(name, lookup);
  return purpose === 'traffic' ? findTraffic(name, target, lookup) : findChallenge(name, target, lookup);
}

/** @throws {IssueError} `DNS_ERROR` with the wrong record, expected and found; `INTERNAL_ERROR` when a lookup failed */
export async function checkRecords(domain: string, targets: RecordTargets, lookup: DnsLookup): Promise<void> {
  for (const record of neededRecords(domain, targets)) {
    const { inPlace, found } = await findRecord(record, lookup);
    if (inPlace) continue;
    const wanted = record.target === null ? 'point to this gateway' : `be a CNAME to ${record.target}`;
    throw new IssueError('DNS_ERROR', `The DNS record ${record.name} must ${wanted}. Found: ${found}.`);
  }
}

/** The name that a domain's DNS-01 challenge is looked up at (RFC 8555, section 8.4). */
export function challengeRecord(domain: string): string {
  return `_acme-challenge.${domain.replace(/^\*\./, '')}`;
}

async function findTraffic(domain: string, target: string, lookup: DnsLookup): Promise<RecordFinding> {
  // Any name below a wildcard will do; a random one is in no resolver's negative cache.
  const name = domain.replace(/^\*/, () => `check-${randomBytes(6).toString('hex')}`);
  const chain = await follow(name, target, lookup);
  if (chain === null) return inPlace(target);
  if (chain !== '') return { inPlace: false, found: chain };
  const addresses = await lookup.addresses(name);
  if (addresses.length === 0) return { inPlace: false, found: 'no such record' };
  // A zone's apex can have no CNAME; providers then copy the target's addresses ("ALIAS", "flattening").
  const ours = new Set(await lookup.addresses(target));
  const shown = addresses.slice(0, 4).join(', ');
  if (addresses.every((address) => ours.has(address)))
    return { inPlace: true, found: `the gateway's address ${shown}` };
  return { inPlace: false, found: `no CNAME but the addresses ${shown}` };
}

async function findChallenge(record: string, target: string, lookup: DnsLookup): Promise<RecordFinding> {
  const chain = await follow(record, target, lookup);
  return chain === null ? inPlace(target) : { inPlace: false, found: chain || 'no such record' };
}

async function findAddress(domain: string, lookup: DnsLookup): Promise<RecordFinding> {
  const addresses = await lookup.addresses(domain);
  if (addresses.length === 0) return { inPlace: false, found: 'no address' };
  return { inPlace: true, found: addresses.slice(0, 4).join(', ') };
}

function inPlace(target: string): RecordFinding {
  return { inPlace: true, found: `a CNAME to ${target}` };
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

const TIMEOUT_MS = 5000;
const TRIES = 2;

const ABSENT = new Set(['ENOTFOUND', 'ENODATA']);

/** Lookups in the public DNS. A missing name or record is an empty list; a failed lookup is an {@link IssueError}. */
export class DnsLookup {
  readonly #resolver = new Resolver({ timeout: TIMEOUT_MS, tries: TRIES });
  readonly #signal: AbortSignal;

  /** @param servers resolvers, `ip` or `ip:port`; null: the system's */
  constructor(servers: readonly string[] | null, signal: AbortSignal) {
    if (servers) this.#resolver.setServers(servers);
    this.#signal = signal;
  }

  cname(name: string): Promise<string[]> {
    return this.#ask(`CNAME of ${name}`, () => this.#resolver.resolveCname(name));
  }

  caa(name: string): Promise<CaaRecord[]> {
    return this.#ask(`CAA of ${name}`, () => this.#resolver.resolveCaa(name));
  }

  async txt(name: string): Promise<string[]> {
    const records = await this.#ask(`TXT of ${name}`, () => this.#resolver.resolveTxt(name));
    return records.map((parts) => parts.join(''));
  }

  async addresses(name: string): Promise<string[]> {
    const v4 = this.#ask(`A of ${name}`, () => this.#resolver.resolve4(name));
    const v6 = this.#ask(`AAAA of ${name}`, () => this.#resolver.resolve6(name));
    return (await Promise.all([v4, v6])).flat();
  }

  async #ask<T>(what: string, lookup: () => Promise<T[]>): Promise<T[]> {
    this.#signal.throwIfAborted();
    const cancel = () => this.#resolver.cancel();
    this.#signal.addEventListener('abort', cancel, { once: true });
    try {
      return await lookup();
    } catch (cause) {
      this.#signal.throwIfAborted();
      const code = String((cause as NodeJS.ErrnoException).code);
      if (ABSENT.has(code)) return [];
      throw new IssueError('INTERNAL_ERROR', `The DNS lookup of ${what} failed (${code}).`, { cause });
    } finally {
      this.#signal.removeEventListener('abort', cancel);
    }
  }
}
