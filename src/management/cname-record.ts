import { Resolver } from 'node:dns/promises';
import { messageOf } from '../lib/errors.ts';
import type { ReservedDomain } from './resources/reserved-domain.ts';

/** A DNS record that the owner of a domain has to add. */
export interface CnameRecord {
  /** Such as `*.sitea.example.com`. */
  name: string;
  target: string;
  /** `traffic` leads visitors to the service, `certificate` lets it prove that the domain may have one. */
  purpose: 'traffic' | 'certificate';
}

/** What DNS says about a record. */
export interface CnameFinding {
  inPlace: boolean;
  /** For people: what was found instead. */
  found: string;
}

/** How deep a chain of CNAMEs may be; resolvers give up at about the same. */
const MAX_CHAIN = 8;

/** The records that a domain needs; none when the service owns the name above it. */
export function requiredRecords(domain: ReservedDomain): CnameRecord[] {
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

/** The record as a line of a zone file (RFC 1035, section 5.1), which most providers take as they are. */
export function zoneFileLine({ name, target }: CnameRecord): string {
  return `${name}. 300 IN CNAME ${target}.`;
}

/** Looks records up with a resolver of its own, so that no cache of this process stands in between. */
export class CnameChecker {
  readonly #resolver: Resolver;

  /**
   * @param servers resolvers to ask, `ip` or `ip:port`; left out: those of the system
   * @param timeoutMs milliseconds for one question
   */
  constructor(servers?: readonly string[], timeoutMs = 3000) {
    this.#resolver = new Resolver({ timeout: timeoutMs, tries: 2 });
    if (servers) this.#resolver.setServers(servers);
  }

  /** Whether the record is in place, itself or through a chain of CNAMEs. Lookups that fail count as not. */
  async check(record: CnameRecord): Promise<CnameFinding> {
    const target = normalize(record.target);
    // Under a wildcard any name shows what visitors will meet.
    let name = record.name.replace(/^\*/, 'device-agent-check');
    let found = 'no CNAME record (a provider’s proxy mode hides it: switch it off)';
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
