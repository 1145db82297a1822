import type { OwnNamesChoice } from '../../settings/certificate-settings.ts';
import type { DnsTargets, DomainSettings } from '../endpoints/domain-names.ts';
import { apiHost, connectHost } from '../endpoints/gateway-hosts.ts';
import type { CertificatePolicy } from '../store/managed-domains.ts';
import type { Store } from '../store/store.ts';
import { freshJob, withPolicy } from './provisioning-job.ts';

/**
 * The names to order for. A wildcard, which covers every endpoint directly under the base domain, can only be proved in
 * the DNS.
 *
 * @param answersDns whether the challenge DNS runs
 */
export function ownNames(choice: OwnNamesChoice, { baseDomain }: DomainSettings, answersDns: boolean): string[] {
  if (choice === 'none') return [];
  if (answersDns) return [`*.${baseDomain}`, baseDomain];
  const names = [apiHost(baseDomain), connectHost(baseDomain)];
  return choice === 'all' ? names : names.slice(0, 1);
}

/**
 * Where the records of the base domain and of its wildcard have to lead, which share one challenge name.
 *
 * @returns null when the name is another one
 */
export function ownTargets(domain: string, { baseDomain, acmeZone }: DomainSettings): DnsTargets | null {
  if (domain !== baseDomain && domain !== `*.${baseDomain}`) return null;
  return { cname_target: null, acme_challenge_cname_target: `gateway.${acmeZone}` };
}

/**
 * Has the provisioner look after these names from now on, and after no others. What is on its way stays on its way: a
 * gateway that is started again and again must not use up what its authority allows.
 *
 * @param policy another one than before has new certificates ordered
 */
export async function claimGatewayNames(
  { database, ids, now, ownDomains, tlsCertificates }: Store,
  names: readonly string[],
  policy: CertificatePolicy,
): Promise<void> {
  const isAsBefore = ({ domain, policy: before }: { domain: string; policy: CertificatePolicy | null }) =>
    names.includes(domain) && before?.authority === policy.authority;
  const known = ownDomains.managed();
  if (known.length === names.length && known.every(isAsBefore)) return;
  await database.write(() => {
    for (const row of known.filter(({ domain }) => !names.includes(domain))) {
      ownDomains.delete(row.id);
      tlsCertificates.discardManaged(row.certificate_id);
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
