import { Resolver } from 'node:dns/promises';
import { messageOf } from '../lib/errors.ts';
import type { ReservedDomain } from './resources/reserved-domain.ts';

/** A DNS record that the domain's owner must add. */
export interface CnameRecord {
  /** For example `*.sitea.example.com`. */
  name: string;
  target: string;
  /** `traffic` points clients to the gateway, `certificate` delegates the ACME challenge to it. */
  purpose: 'traffic' | 'certificate';
}

export interface CnameFinding {
  inPlace: boolean;
  found: string;
}

/** Maximum length of a CNAME chain, similar to resolvers. */
const MAX_CHAIN = 8;

/** The records that a domain requires; none below the gateway's own domain. */
export function requiredRecords(
  domain: Pick<ReservedDomain, 'domain' | 'cname_target' | 'acme_challenge_cname_target'>,
): CnameRecord[] {
  const records: CnameRecord[] = [];
  if (domain.cname_target !== null) {
    records.push({ name: domain.domain, target: domain.cname_target, purpose: 'traffic' });
  }
  if (domain.acme_challenge_cname_target !== null) {
    const base = domain.domain.replace(/^\*\./, '');
    records.push({
      name: `_acme-challenge.${base}`,
      target: domain.acme_challenge_cname_target,
      purpose: 'certificate',
    });
  }
  return records;
}

/** Formats the record as a line of a zone file (RFC 1035, section 5.1). */
export function zoneFileLine({ name, target }: CnameRecord): string {
  return `${name}. 300 IN CNAME ${target}.`;
}

/** Checks records with its own resolver, which bypasses the process's cache. */
export class CnameChecker {
  readonly #resolver: Resolver;

  /** @param servers resolvers, `ip` or `ip:port`; default: the system's */
  constructor(servers?: readonly string[], timeoutMs = 3000) {
    this.#resolver = new Resolver({ timeout: timeoutMs, tries: 2 });
    if (servers) this.#resolver.setServers(servers);
  }

  /** Checks whether the record points to its target, also through other CNAMEs. Failed lookups count as missing. */
  async check(record: CnameRecord): Promise<CnameFinding> {
    const target = normalize(record.target);
    // For a wildcard, any name below it is representative.
    let name = record.name.replace(/^\*/, 'device-agent-check');
    let found = 'no CNAME record (turn off the DNS provider’s proxy mode, which hides it)';
    try {
      for (let hop = 0; hop < MAX_CHAIN; hop += 1) {
        const [next] = await this.#cname(name);
        if (next === undefined) break;
        if (normalize(next) === target) return { inPlace: true, found: `CNAME ${target}` };
        found = `CNAME ${normalize(next)}`;
        name = next;
      }
    } catch (error) {
      found = `lookup failed: ${messageOf(error)}`;
    }
    return { inPlace: false, found };
  }

  async #cname(name: string): Promise<string[]> {
    try {
      return await this.#resolver.resolveCname(name);
    } catch (error) {
      const { code } = error as { code?: string };
      if (code === 'ENOTFOUND' || code === 'ENODATA') return [];
      throw error;
    }
  }
}

function normalize(name: string): string {
  return name.toLowerCase().replace(/\.$/, '');
}
