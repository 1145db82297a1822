import type { OwnNamesChoice } from '../../settings/certificate-settings.ts';
import {
  apiHost,
  connectHost,
  type DnsTargets,
  type DomainSettings,
  hasNoDomain,
  signInHost,
} from '../endpoints/domain-names.ts';
import type { StoredCertificatePolicy } from '../store/domains.ts';
import type { Store } from '../store/store.ts';
import { discardManaged } from './certificate-errands.ts';
import { freshJob, withPolicy } from './renewal-schedule.ts';

/** The gateway's names that need certificates. The wildcard covers all endpoints, and can only be validated with DNS. */
export function ownNames(choice: OwnNamesChoice, domains: DomainSettings, answersDns: boolean): string[] {
  if (choice === 'none') return [];
  const { baseDomain, ip = null } = domains;
  const addresses = ip === null ? [] : [ip];
  if (hasNoDomain(domains)) return addresses;
  return [...namesOf(choice, baseDomain, answersDns), ...addresses];
}

function namesOf(choice: OwnNamesChoice, baseDomain: string, answersDns: boolean): string[] {
  if (answersDns) return [`*.${baseDomain}`, baseDomain];
  const forBrowsers = [apiHost(baseDomain), signInHost(baseDomain)];
  return choice === 'all' ? [...forBrowsers, connectHost(baseDomain)] : forBrowsers;
}

/** The expected DNS records of the base domain and of its wildcard, which share one challenge name; null for other names. */
export function ownTargets(domain: string, { baseDomain, acmeZone }: DomainSettings): DnsTargets | null {
  if (domain !== baseDomain && domain !== `*.${baseDomain}`) return null;
  return { cname_target: null, acme_challenge_cname_target: `gateway.${acmeZone}` };
}

/** Makes these names the ones that are renewed. Jobs under way continue: restarts must not use up the CA's rate limits. */
export async function claimGatewayNames(
  store: Store,
  names: readonly string[],
  policy: StoredCertificatePolicy,
): Promise<void> {
  const { database, ids, now, ownDomains } = store;
  const isAsBefore = ({ domain, policy: before }: { domain: string; policy: StoredCertificatePolicy | null }) =>
    names.includes(domain) && before?.authority === policy.authority;
  const known = ownDomains.managed();
  if (known.length === names.length && known.every(isAsBefore)) return;
  await database.write(() => {
    for (const row of known.filter(({ domain }) => !names.includes(domain))) {
      ownDomains.delete(row.id);
      discardManaged(store, row);
    }
    for (const domain of names) {
      const row = ownDomains.byName(domain);
      if (row && !isAsBefore(row)) ownDomains.update(withPolicy(row, policy, now()));
      if (row) continue;
      const common = { id: ids.next('rd'), created_at: now(), domain, certificate_id: null, renews_at: null };
      ownDomains.insert({ ...common, policy, job: freshJob(now()), due_at: now() });
    }
  });
}
