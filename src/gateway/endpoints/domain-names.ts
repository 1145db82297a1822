import { hash } from 'node:crypto';
import { apiHost, connectHost } from './gateway-hosts.ts';

/** Which names are this gateway's own. */
export interface DomainSettings {
  /** Lower case; names under it belong to the service and need no DNS records of the user's. */
  baseDomain: string;
  /** Zone in which the CNAME targets of custom names lie. */
  cnameZone: string;
  /** Zone in which the targets of ACME challenge names lie. */
  acmeZone: string;
}

/** Where a custom name has to point to, and where its ACME challenge name has to. */
export interface DnsTargets {
  cname_target: string | null;
  acme_challenge_cname_target: string | null;
}

/**
 * The names of a gateway: everything else follows from its base domain.
 *
 * @param baseDomain lower case
 */
export function gatewayDomains(baseDomain: string): DomainSettings {
  return { baseDomain, cnameZone: `cname.${baseDomain}`, acmeZone: `acme.${baseDomain}` };
}

/** Whether a name belongs to the service itself: it needs no DNS records, and no certificate of its own. */
export function isUnderBaseDomain(domain: string, { baseDomain }: DomainSettings): boolean {
  return domain.endsWith(`.${baseDomain}`);
}

/**
 * Whether a name is one of internal endpoints: no DNS knows them, and nobody needs to reserve them. A gateway's own names
 * stay public, even if it is called gateway.internal.
 */
export function isInternalName(name: string, { baseDomain }: Pick<DomainSettings, 'baseDomain'>): boolean {
  return name.endsWith('.internal') && name !== baseDomain && !name.endsWith(`.${baseDomain}`);
}

/** The name itself and every wildcard that covers it, the closest first. */
export function coveringNames(name: string): string[] {
  const labels = name.split('.');
  const wildcards = labels.slice(1).map((_, depth) => `*.${labels.slice(depth + 1).join('.')}`);
  return name.startsWith('*.') ? wildcards : [name, ...wildcards];
}

/** Whether a name must stay free, because the gateway itself answers for it. */
export function isGatewayName(domain: string, { baseDomain, cnameZone, acmeZone }: DomainSettings): boolean {
  const own = [baseDomain, connectHost(baseDomain), apiHost(baseDomain)];
  return own.includes(domain) || [cnameZone, acmeZone].some((zone) => domain === zone || domain.endsWith(`.${zone}`));
}

/**
 * The DNS targets of a name. They depend on name and account alone, so records survive when a domain is deleted and
 * reserved again.
 *
 * @param account tells this gateway's targets from those of others
 */
export function dnsTargets(domain: string, account: string, settings: DomainSettings): DnsTargets {
  if (isUnderBaseDomain(domain, settings)) return { cname_target: null, acme_challenge_cname_target: null };
  const name = hash('sha256', domain);
  const target = `${name.slice(0, 17)}.${hash('sha256', account).slice(0, 17)}.${settings.cnameZone}`;
  const acme = domain.startsWith('*.') ? `${name.slice(17, 29)}.${settings.acmeZone}` : null;
  return { cname_target: target, acme_challenge_cname_target: acme };
}
