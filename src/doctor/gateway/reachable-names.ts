import { randomBytes } from 'node:crypto';
import { Resolver } from 'node:dns/promises';
import { apiHost, connectHost, hasNoDomain, tcpHost } from '../../gateway/endpoints/domain-names.ts';
import { messageOf } from '../../lib/errors.ts';
import { CnameChecker } from '../../management/cname-record.ts';
import { failed, ok, type Result, skipped } from '../finding.ts';
import { type GatewayRecord, gatewayRecords, needsDns, type RecordSettings, zoneLine } from './gateway-records.ts';

const LOOKUP_MS = 3000;
const LATER = 'DNS changes take time: run this again later';
/** c-ares: the name, or a record of this type, does not exist. */
const ABSENT = ['ENOTFOUND', 'ENODATA'];

/** What DNS says about a gateway's names. */
export interface FoundNames {
  results: Result[];
  /** All addresses that the names lead to. */
  addresses: string[];
}

/**
 * Looks up the gateway's names as agents and clients do.
 *
 * @param resolvers `ip` or `ip:port`; null: the system's
 */
export async function findNames(
  settings: RecordSettings,
  resolvers: readonly string[] | null,
  patience: number,
): Promise<FoundNames> {
  const { domain, ip } = settings;
  if (hasNoDomain({ baseDomain: domain, ip }))
    return { results: [skipped(`${ip} is an address, without DNS`)], addresses: [ip ?? ''] };
  if (!needsDns(domain)) return { results: [skipped(`${domain} is this machine, without DNS`)], addresses: [] };
  const resolver = new Resolver({ timeout: LOOKUP_MS * patience, tries: 2 });
  if (resolvers) resolver.setServers(resolvers);
  const lookUp = new Lookup(resolver);
  // A random name is in no cache, and shows whether the wildcard is there.
  const endpoint = `check-${randomBytes(4).toString('hex')}.${domain}`;
  const names = [...new Set([domain, connectHost(domain), apiHost(domain), tcpHost(domain), endpoint])];
  const found = await Promise.all(names.map((name) => lookUp.addresses(name)));
  const addresses = [...new Set(found.flatMap((each) => (each instanceof Error ? [] : each)))].sort();
  const delegated = gatewayRecords(settings, addresses).filter(({ type }) => type === 'NS' || type === 'CNAME');
  const checks = new CnameChecker(resolvers ?? undefined, LOOKUP_MS * patience);
  const others = await Promise.all(
    delegated.map((record) => (record.type === 'NS' ? lookUp.delegation(record) : challengeName(record, checks))),
  );
  return { results: [...judgeAddresses(names, found, endpoint, domain), ...others], addresses };
}

function judgeAddresses(
  names: readonly string[],
  found: readonly (string[] | Error)[],
  endpoint: string,
  domain: string,
): Result[] {
  const shown = (name: string) => (name === endpoint ? `*.${domain}` : name);
  const isEmpty = (result: string[] | Error | undefined) => Array.isArray(result) && result.length === 0;
  const hasWildcard = !isEmpty(found[names.indexOf(endpoint)]);
  const missing = names.flatMap((name, at) => {
    const result = found[at];
    if (result instanceof Error)
      return [failed(`${shown(name)}: lookup failed: ${result.message}`, 'check the resolver')];
    // The wildcard covers the gateway's own names.
    if (!isEmpty(result) || (!hasWildcard && name !== domain && name !== endpoint)) return [];
    return [failed(`${shown(name)} has no address`, `add its address record; ${LATER}`)];
  });
  if (missing.length > 0) return missing;
  const sets = new Map(found.map((addresses, at) => [shown(names[at] ?? ''), [addresses].flat().sort().join(', ')]));
  const [first = ''] = sets.values();
  const different = [...sets].filter(([, addresses]) => addresses !== first);
  if (different.length === 0) return [ok(`${domain} and *.${domain} are ${first}`)];
  return different.map(([name, addresses]) =>
    failed(`${name} is ${addresses}, but ${domain} is ${first}`, 'point all records to this gateway'),
  );
}

function addRecord(record: GatewayRecord): string {
  return `add the record "${zoneLine(record)}"; ${LATER}`;
}

class Lookup {
  constructor(private readonly resolver: Resolver) {}

  /** @returns the addresses, none for a missing name; an Error when the lookup failed */
  async addresses(name: string): Promise<string[] | Error> {
    const both = await Promise.all([
      this.#ask(() => this.resolver.resolve4(name)),
      this.#ask(() => this.resolver.resolve6(name)),
    ]);
    const found = both.flatMap((each) => (each instanceof Error ? [] : each));
    return found.length > 0 ? found : (both.find((each) => each instanceof Error) ?? []);
  }

  /** The resolver asks the gateway's own DNS server: an answer shows that it is reachable from there, too. */
  async delegation(record: GatewayRecord): Promise<Result> {
    const found = await this.#ask(() => this.resolver.resolveNs(record.name));
    if (found instanceof Error) {
      return failed(
        `${record.name}: no answer from the gateway's DNS server (${found.message})`,
        `open UDP and TCP port 53 in the firewall, and check the record: ${zoneLine(record)}`,
      );
    }
    const names = found.map((name) => name.toLowerCase().replace(/\.$/, ''));
    if (names.includes(record.value ?? '')) return ok(`${record.name} is answered by the gateway's DNS server`);
    return failed(
      names.length === 0 ? `${record.name} has no NS record` : `${record.name} is delegated to ${names.join(', ')}`,
      addRecord(record),
    );
  }

  async #ask<T>(lookup: () => Promise<T[]>): Promise<T[] | Error> {
    try {
      return await lookup();
    } catch (error) {
      const code = String((error as NodeJS.ErrnoException).code);
      return ABSENT.includes(code) ? [] : new Error(messageOf(error));
    }
  }
}

async function challengeName(record: GatewayRecord, checker: CnameChecker): Promise<Result> {
  const wanted = { name: record.name, target: record.value ?? '', purpose: 'certificate' as const };
  const { inPlace, found } = await checker.check(wanted);
  return inPlace ? ok(`${record.name} is ${found}`) : failed(`${record.name}: ${found}`, addRecord(record));
}
