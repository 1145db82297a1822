import { networkInterfaces } from 'node:os';
import { needsDns } from '../../doctor/gateway/gateway-records.ts';
import { parseAddress } from '../../lib/network/ip-address.ts';
import { isPublicDomain } from '../../settings/gateway-settings.ts';
import { LOCAL_CA } from '../../settings/variable-kinds.ts';
import type { InitialSetting } from './settings-text.ts';

export interface WantedGateway {
  /** Null: it has none, and an address instead. */
  domain: string | null;
  ip: string | null;
  /** False: a trial in the current folder, which needs neither root nor public ports. */
  isService: boolean;
  httpsPort: number | null;
  httpPort: number | null;
  /** Whether a public CA issues certificates, where one can. */
  acme: boolean;
  email: string | null;
  /** URL of a shared database; null: a database of its own. */
  database: string | null;
  /** Where other gateways of the shared database reach this one; null: it serves alone. */
  nodeAddress: string | null;
  /** Of the shared database; null: it is known, or not needed. */
  encryptionKey: string | null;
  /** Settings of the environment, see {@link settingsIn}; an option counts more. */
  environment: Readonly<Record<string, string>>;
}

/**
 * The settings of a new gateway: all that it was told, and what has no fitting default.
 *
 * @param isSet whether there is such a setting already, which counts more than a default
 */
export function initialSettings(
  wanted: WantedGateway,
  isSet: (name: string) => boolean,
  interfaces = networkInterfaces(),
): InitialSetting[] {
  const { domain, ip, httpsPort, httpPort, email, acme, database, nodeAddress, encryptionKey, environment } = wanted;
  const options = {
    ...(domain !== null && { GATEWAY_DOMAIN: domain }),
    ...(ip !== null && { GATEWAY_IP: ip }),
    ...(httpsPort !== null && { GATEWAY_HTTPS_PORT: String(httpsPort) }),
    ...(httpPort !== null && { GATEWAY_HTTP_PORT: String(httpPort) }),
    ...(email !== null && { GATEWAY_ACME_EMAIL: email }),
    ...(database !== null && { GATEWAY_DATABASE_URL: database }),
    ...(nodeAddress !== null && { GATEWAY_NODE_ADDRESS: nodeAddress }),
    ...(encryptionKey !== null && { GATEWAY_ENCRYPTION_KEY: encryptionKey }),
    ...(!acme && isCertified({ domain, ip }) && { GATEWAY_ACME_DIRECTORY: LOCAL_CA }),
  };
  const told: Record<string, string> = { ...environment, ...options };
  const defaults = defaultSettings(wanted, told.GATEWAY_ACME_DIRECTORY !== LOCAL_CA, interfaces);
  const others = Object.keys(told).filter((name) => !defaults.some((setting) => setting.name === name));
  return [...defaults, ...others.map((name) => ({ name, value: '' }))].flatMap((setting) => {
    const value = told[setting.name];
    if (value === undefined) return isSet(setting.name) ? [] : [setting];
    return [value === setting.value ? setting : { name: setting.name, value }];
  });
}

function defaultSettings({ domain, ip, isService }: WantedGateway, acme: boolean, interfaces: Interfaces) {
  const isPublic = domain !== null && isPublicDomain(domain);
  const settings: InitialSetting[] = domain === null ? [] : [{ name: 'GATEWAY_DOMAIN', value: domain }];
  if (ip !== null) settings.push({ name: 'GATEWAY_IP', value: ip });
  if (ip !== null || needsDns(domain ?? '') || isService)
    settings.push({ name: 'GATEWAY_HOST', value: allAddresses(interfaces) });
  if (isService) {
    settings.push({ name: 'GATEWAY_HTTPS_PORT', value: '443' }, { name: 'GATEWAY_HTTP_PORT', value: '80' });
  }
  if (domain === null && isService && acme && isCertified({ domain, ip })) settings.push(...ADDRESS_CERTIFICATE);
  if (isPublic && isService && acme) settings.push(...certificateSettings(interfaces));
  else if (isPublic) {
    const comment = 'Certificates of the gateway’s own CA only; remove this line for those of Let’s Encrypt.';
    settings.push({ name: 'GATEWAY_ACME_DIRECTORY', value: LOCAL_CA, comment });
  }
  return settings;
}

/** Whether public CAs certify the gateway's domain, or else its address. They do not for private ones. */
function isCertified({ domain, ip }: Pick<WantedGateway, 'domain' | 'ip'>): boolean {
  return domain === null ? parseAddress(ip ?? '')?.range() === 'unicast' : isPublicDomain(domain);
}

const ADDRESS_CERTIFICATE: readonly InitialSetting[] = [
  {
    name: 'GATEWAY_ACME_DIRECTORY',
    value: 'letsencrypt',
    comment: 'A certificate of Let’s Encrypt for the address; ordering it accepts its terms of service.',
  },
  { name: 'GATEWAY_ACME_OWN_NAMES', value: 'public' },
];

function certificateSettings(interfaces: Interfaces): InitialSetting[] {
  const comment =
    'Certificates of Let’s Encrypt for endpoints and the management API; ordering them accepts its terms of service.';
  const [address] = ownAddresses(interfaces);
  return [
    { name: 'GATEWAY_ACME_OWN_NAMES', value: 'public', comment },
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
