import { networkInterfaces } from 'node:os';
import { needsDns } from '../../doctor/gateway/gateway-records.ts';
import { parseAddress } from '../../lib/network/ip-address.ts';
import { isPublicDomain } from '../../settings/gateway-settings.ts';

/** What `gateway init` was asked for. */
export interface WantedGateway {
  domain: string;
  /** False: a trial in the current folder, which needs neither root nor public ports. */
  isService: boolean;
  httpsPort: number | null;
  httpPort: number | null;
  /** Whether a public CA issues certificates, where one can. */
  acme: boolean;
  /** For the CA's notices. */
  email: string | null;
}

/** A setting with the comment above it. */
export interface InitialSetting {
  name: string;
  value: string;
  comment?: string;
}

/** The settings of a new gateway; those with a fitting default are left out. */
export function initialSettings(wanted: WantedGateway, interfaces = networkInterfaces()): InitialSetting[] {
  const { domain, isService, acme, email } = wanted;
  const httpsPort = wanted.httpsPort ?? (isService ? 443 : null);
  const httpPort = wanted.httpPort ?? (isService ? 80 : null);
  const isPublic = isPublicDomain(domain);
  const settings: InitialSetting[] = [{ name: 'GATEWAY_DOMAIN', value: domain }];
  if (needsDns(domain) || isService) settings.push({ name: 'GATEWAY_HOST', value: allAddresses(interfaces) });
  if (httpsPort !== null) settings.push({ name: 'GATEWAY_HTTPS_PORT', value: String(httpsPort) });
  if (httpPort !== null) settings.push({ name: 'GATEWAY_HTTP_PORT', value: String(httpPort) });
  if (isPublic && isService && acme) settings.push(...certificateSettings(email, interfaces));
  else if (isPublic) {
    const comment = 'Certificates of the gateway’s own CA only; remove this line for those of Let’s Encrypt.';
    settings.push({ name: 'GATEWAY_ACME_DIRECTORY', value: 'local', comment });
  }
  return settings;
}

function certificateSettings(email: string | null, interfaces: Interfaces): InitialSetting[] {
  const comment =
    'Certificates of Let’s Encrypt for endpoints and the management API; ordering them accepts its terms of service.';
  const [address] = ownAddresses(interfaces);
  return [
    { name: 'GATEWAY_ACME_OWN_NAMES', value: 'public', comment },
    ...(email === null ? [] : [{ name: 'GATEWAY_ACME_EMAIL', value: email }]),
    { name: 'GATEWAY_DNS_PORT', value: '53', comment: 'The DNS server that wildcard certificates need.' },
    // On all addresses, it would collide with the resolver that many systems run at 127.0.0.53.
    ...(address === undefined ? [] : [{ name: 'GATEWAY_DNS_HOST', value: address }]),
  ];
}

type Interfaces = ReturnType<typeof networkInterfaces>;

function allAddresses(interfaces: Interfaces): string {
  return ownAddresses(interfaces).some((address) => address.includes(':')) ? '::' : '0.0.0.0';
}

/** Addresses that other machines can use, IPv4 first. */
function ownAddresses(interfaces: Interfaces): string[] {
  const all = Object.values(interfaces).flatMap((addresses) => addresses ?? []);
  const usable = all.filter(({ internal, address }) => !internal && parseAddress(address)?.range() !== 'linkLocal');
  return usable.map(({ address }) => address).sort((a, b) => Number(a.includes(':')) - Number(b.includes(':')));
}

/** Formats settings as lines of a settings file. */
export function settingLines(settings: readonly InitialSetting[]): string {
  return settings.map(({ name, value, comment }) => `${comment ? `# ${comment}\n` : ''}${name}=${value}\n`).join('');
}
