import { messageOf } from '../../../lib/errors.ts';
import { isBelowLocalhost } from '../../../lib/network/loopback-names.ts';
import { type DnsCheck, type DnsRecordCheck, reservedDomains } from '../../../management/resources/reserved-domain.ts';
import { DnsLookup, findRecord, type NeededRecord, neededRecords } from '../../certificates/issuing/dns-check.ts';
import { dnsTargets } from '../../endpoints/domain-names.ts';
import type { ApiContext } from '../api-context.ts';
import { found } from '../operation-router.ts';
import { refuse } from '../request.ts';

const DEADLINE_MS = 15_000;
/** Each check asks the resolver a few questions. */
const MAX_RUNNING = 8;

/**
 * Looks up the records of reserved domains. It asks the gateway's resolver for these names only, and connects to nothing
 * that they lead to.
 */
export function dnsChecker({ store, domains, dnsServers }: ApiContext): (id: string) => Promise<DnsCheck> {
  const running = new Map<string, Promise<DnsCheck>>();
  const check = async (domain: string): Promise<DnsCheck> => {
    const { baseDomain } = domains;
    const needsDns = !isBelowLocalhost(domain) && baseDomain !== 'localhost' && !isBelowLocalhost(baseDomain);
    const needed = needsDns ? neededRecords(domain, dnsTargets(domain, store.account, domains)) : [];
    const lookup = new DnsLookup(dnsServers, AbortSignal.timeout(DEADLINE_MS));
    const records = await Promise.all(needed.map((record) => shown(record, lookup)));
    return { checked_at: store.now(), records };
  };
  return (id) => {
    const { domain } = found(store.reservedDomains.get(id), reservedDomains);
    const present = running.get(domain);
    if (present) return present;
    if (running.size >= MAX_RUNNING) {
      throw refuse(429, 226, `too many DNS checks: at most ${MAX_RUNNING} at a time`, { retryAfter: 5 });
    }
    const started = check(domain).finally(() => running.delete(domain));
    running.set(domain, started);
    return started;
  };
}

async function shown({ name, target, purpose }: NeededRecord, lookup: DnsLookup): Promise<DnsRecordCheck> {
  try {
    const { inPlace, found: text } = await findRecord({ name, target, purpose }, lookup);
    return { name, target, purpose, in_place: inPlace, found: text };
  } catch (error) {
    return { name, target, purpose, in_place: false, found: messageOf(error).replace(/\.$/, '') };
  }
}
