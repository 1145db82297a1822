import { networkInterfaces } from 'node:os';
import { gatewayDomains } from '../../gateway/endpoints/domain-names.ts';
import { parseAddress } from '../../lib/network/ip-address.ts';
import { isBelowLocalhost } from '../../lib/network/loopback-names.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';

/** A DNS record that the gateway needs in the zone of its domain. */
export interface GatewayRecord {
  /** For example `*.gateway.example.com`. */
  name: string;
  type: 'A' | 'AAAA' | 'NS' | 'CNAME';
  /** An address or a name; null: an address that this machine cannot know, as behind NAT. */
  value: string | null;
}

/** What a gateway's records depend on. */
export type RecordSettings = Pick<GatewayServerSettings, 'domain' | 'ip' | 'challengeDns' | 'acme'>;

/** Whether clients find the gateway through DNS. Names below localhost always lead to this machine. */
export function needsDns(domain: string): boolean {
  return domain !== 'localhost' && !isBelowLocalhost(domain);
}

/**
 * The records that a gateway needs, as its operator pastes them into the domain's zone.
 *
 * @param addresses public addresses of the gateway; empty when unknown
 */
export function gatewayRecords({ domain, challengeDns, acme }: RecordSettings, addresses: readonly string[]) {
  if (!needsDns(domain)) return [];
  const { acmeZone } = gatewayDomains(domain);
  const targets = addresses.length > 0 ? addresses : [null];
  const records: GatewayRecord[] = [domain, `*.${domain}`].flatMap((name) =>
    targets.map((value) => ({ name, type: value?.includes(':') ? ('AAAA' as const) : ('A' as const), value })),
  );
  if (challengeDns === null) return records;
  records.push({ name: acmeZone, type: 'NS', value: challengeDns.nameServer });
  if (acme !== null && acme.ownNames !== 'none') {
    records.push({ name: `_acme-challenge.${domain}`, type: 'CNAME', value: `gateway.${acmeZone}` });
  }
  return records;
}

/** Formats a record as a line of a zone file (RFC 1035, section 5.1). */
export function zoneLine({ name, type, value }: GatewayRecord): string {
  const isName = type === 'NS' || type === 'CNAME';
  return `${name}. 300 IN ${type} ${value === null ? '<public address of this server>' : `${value}${isName ? '.' : ''}`}`;
}

/** This machine's addresses that the internet can reach; empty behind NAT. */
export function publicAddresses(): string[] {
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return all.filter(({ internal }) => !internal).flatMap(({ address }) => (isPublic(address) ? [address] : []));
}

function isPublic(address: string): boolean {
  return parseAddress(address)?.range() === 'unicast';
}
