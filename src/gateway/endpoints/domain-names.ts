import { hash } from 'node:crypto';
import { domainToASCII } from 'node:url';
import { hostPort, isUnspecified, urlHostOf } from '../../lib/network/ip-address.ts';
import { isBelowLocalhost } from '../../lib/network/loopback-names.ts';
import { isWithin, type PortRange } from '../../lib/network/port-range.ts';

export interface DomainSettings {
  /** Lower case. Names below it belong to the gateway and need no DNS records of the user. */
  baseDomain: string;
  /** Zone of the CNAME targets of custom names. */
  cnameZone: string;
  /** Zone of the targets of ACME challenge names. */
  acmeZone: string;
  /** The gateway's address, for names below localhost; left out or null: these need DNS like all others. */
  ip?: string | null;
  /** Ports of that address which stand for names; left out or null: none does. */
  httpsPorts?: PortRange | null;
}

export interface DnsTargets {
  cname_target: string | null;
  acme_challenge_cname_target: string | null;
}

export function gatewayDomains(
  baseDomain: string,
  ip: string | null = null,
  httpsPorts: PortRange | null = null,
): DomainSettings {
  return { baseDomain, cnameZone: `cname.${baseDomain}`, acmeZone: `acme.${baseDomain}`, ip, httpsPorts };
}

/**
 * Whether a name is below the base domain: it needs no DNS records and no certificate of its own. Those below localhost have ports
 * of the gateway's address, also after it got a domain.
 */
export function isUnderBaseDomain(domain: string, { baseDomain, ip = null }: DomainSettings): boolean {
  return domain.endsWith(`.${baseDomain}`) || (ip !== null && isBelowLocalhost(domain));
}

/** The base domain, or the wildcard below it, when it covers a name; null when it does not, as one wildcard is one level. */
export function ownDomainOf(name: string, { baseDomain }: DomainSettings): string | null {
  if (name === baseDomain) return baseDomain;
  return name.slice(name.indexOf('.')) === `.${baseDomain}` ? `*.${baseDomain}` : null;
}

/** Whether a name is of internal endpoints, which need no DNS or reservation. The gateway's own names never are. */
export function isInternalName(name: string, { baseDomain }: Pick<DomainSettings, 'baseDomain'>): boolean {
  return name.endsWith('.internal') && name !== baseDomain && !name.endsWith(`.${baseDomain}`);
}

/** The name itself and every wildcard that covers it, most specific first. */
export function coveringNames(name: string): string[] {
  const labels = name.split('.');
  const wildcards = labels.slice(1).map((_, depth) => `*.${labels.slice(depth + 1).join('.')}`);
  return name.startsWith('*.') ? wildcards : [name, ...wildcards];
}

/** Whether the gateway is known by its address: it has no domain that clients could look up. */
export function hasNoDomain({ baseDomain, ip = null }: Pick<DomainSettings, 'baseDomain' | 'ip'>): boolean {
  return ip !== null && isLocalDomain(baseDomain);
}

/** Whether the names of a base domain need no DNS on this machine. */
export function isLocalDomain(baseDomain: string): boolean {
  return baseDomain === 'localhost' || isBelowLocalhost(baseDomain);
}

/** The host of the management API's URL. */
export function publicApiHost(settings: Pick<DomainSettings, 'baseDomain' | 'ip'>): string {
  return hasNoDomain(settings) ? urlHostOf(settings.ip ?? '') : apiHost(settings.baseDomain);
}

/** Whether the gateway itself serves a name, so that nobody else can use it. */
export function isGatewayName(domain: string, settings: DomainSettings): boolean {
  const { baseDomain, cnameZone, acmeZone } = settings;
  const own = [baseDomain, connectHost(baseDomain), apiHost(baseDomain), signInHost(baseDomain)];
  if (own.includes(domain) || portOfHost(domain, settings) !== null) return true;
  return [cnameZone, acmeZone].some((zone) => domain === zone || domain.endsWith(`.${zone}`));
}

const PORT_HOST = /^port-([1-9]\d{0,4})\./;

/** The name of a port of the gateway's address, which has got a domain; null: it has none. */
export function hostOfPort(port: number, settings: PortNaming): string | null {
  const { baseDomain, ip, httpsPorts } = settings;
  const isNamed = ip && httpsPorts && isWithin(port, [httpsPorts]) && !hasNoDomain(settings);
  return isNamed ? `port-${port}.${baseDomain}` : null;
}

type PortNaming = Pick<DomainSettings, 'baseDomain' | 'ip' | 'httpsPorts'>;

/** The port that a {@link hostOfPort} stands for; null: it stands for none. */
export function portOfHost(host: string, settings: PortNaming): number | null {
  const port = Number(PORT_HOST.exec(host)?.[1]);
  return host === hostOfPort(port, settings) ? port : null;
}

/** They depend only on name and account, so that DNS records stay valid when a domain is deleted and reserved again. */
export function dnsTargets(domain: string, account: string, settings: DomainSettings): DnsTargets {
  if (isUnderBaseDomain(domain, settings)) return { cname_target: null, acme_challenge_cname_target: null };
  const name = hash('sha256', domain);
  const target = `${name.slice(0, 17)}.${hash('sha256', account).slice(0, 17)}.${settings.cnameZone}`;
  const acme = domain.startsWith('*.') ? `${name.slice(17, 29)}.${settings.acmeZone}` : null;
  return { cname_target: target, acme_challenge_cname_target: acme };
}

export function connectHost(baseDomain: string): string {
  return `connect.${baseDomain}`;
}

export function apiHost(baseDomain: string): string {
  return `api.${baseDomain}`;
}

/** Of the page at which people of the gateway sign in. */
export function signInHost(baseDomain: string): string {
  return `sign-in.${baseDomain}`;
}

/** The host in the addresses of TCP endpoints. Below localhost it is the base domain: not every resolver knows subdomains. */
export function tcpHost(baseDomain: string, ip: string | null = null): string {
  if (hasNoDomain({ baseDomain, ip })) return urlHostOf(ip ?? '');
  return baseDomain.includes('.') ? `tcp.${baseDomain}` : baseDomain;
}

/**
 * The `host:port` that agents are given: an IP address for localhost, whose subdomains not every resolver knows.
 * @param at `host` is the listen address; without a `sessionPort` agents use the HTTPS port
 */
export function sessionAddress(at: {
  host: string;
  baseDomain: string;
  sessionPort: number | null;
  httpsPort: number;
  ip?: string | null;
}): string {
  if (hasNoDomain(at)) return hostPort(at.ip ?? '', at.sessionPort ?? at.httpsPort);
  const byAddress = !isUnspecified(at.host) && (isLocalDomain(at.baseDomain) || at.sessionPort !== null);
  const host = byAddress ? at.host : connectHost(at.baseDomain);
  return hostPort(host, at.sessionPort ?? at.httpsPort);
}

/** Where else agents are taken that have an address of before, by any port and any domain of the gateway. */
export function otherSessionAddresses(
  at: Parameters<typeof sessionAddress>[0],
  formerDomains: readonly string[],
): string[] {
  const hosts = [...new Set([at.host, '0.0.0.0'])];
  const all = [at.baseDomain, ...formerDomains].flatMap((baseDomain) =>
    [at.sessionPort, null].flatMap((sessionPort) =>
      hosts.map((host) => sessionAddress({ ...at, baseDomain, sessionPort, host })),
    ),
  );
  const byIp = at.ip ? [at.sessionPort, null].map((port) => hostPort(at.ip ?? '', port ?? at.httpsPort)) : [];
  return [...new Set([...all, ...byIp])].filter((address) => address !== sessionAddress(at));
}

/** Where devices join. A secret never goes to an origin without TLS, so such a setting does not count. */
export function joinOrigin(
  apiUrl: string | null,
  baseDomain: string,
  httpsPort: number,
  ip: string | null = null,
): { origin: string; isProxied: boolean } {
  const host = publicApiHost({ baseDomain, ip });
  const own = httpsOrigin(host, httpsPort);
  if (!apiUrl?.startsWith('https:')) return { origin: own, isProxied: false };
  return { origin: apiUrl, isProxied: new URL(apiUrl).hostname !== host };
}

/** Where the management API and the dashboard are. */
export function apiOrigin(
  apiUrl: string | null,
  baseDomain: string,
  httpsPort: number,
  ip: string | null = null,
): string {
  return apiUrl ?? httpsOrigin(publicApiHost({ baseDomain, ip }), httpsPort);
}

/** Where people sign in: on the port of the management API, unless another server serves that. */
export function signInOrigin(apiUrl: string | null, baseDomain: string, httpsPort: number): string {
  const { origin, isProxied } = joinOrigin(apiUrl, baseDomain, httpsPort);
  const port = isProxied ? httpsPort : Number(new URL(origin).port || 443);
  return httpsOrigin(signInHost(baseDomain), port);
}

function httpsOrigin(host: string, port: number): string {
  return `https://${host}${port === 443 ? '' : `:${port}`}`;
}

/** A text that is searched, and if names in it are not ASCII, the form that hostnames have (IDNA). */
export function searchForms(text: string): readonly string[] {
  const ascii = domainToASCII(text);
  return ascii === '' || ascii === text ? [text] : [text, ascii];
}
