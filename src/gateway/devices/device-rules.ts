import type { CredentialRow } from '../store/accounts.ts';
import type { DeviceRow } from '../store/devices.ts';

type Named = Pick<DeviceRow, 'name' | 'old_name' | 'site' | 'tcp_ports'>;

export function deviceDomain({ name, site }: Pick<DeviceRow, 'name' | 'site'>): string {
  return `agent-${name}.${site}`;
}

/**
 * The ACL of a device's authtoken: its own names below the site, and its TCP ports. After a rename it keeps the old
 * names until it joins again and knows the new one.
 */
export function deviceRules({ name, old_name, site, tcp_ports }: Named, tcpHost: string): string[] {
  return [
    `bind:*-${name}.${site}`,
    ...(old_name === null ? [] : [`bind:*-${old_name}.${site}`]),
    ...(tcp_ports === null ? [] : [`bind:${tcpHost}:${tcp_ports.first}-${tcp_ports.last}`]),
  ];
}

/** The rules of a device's authtoken that an operator has added. */
export function addedRules({ acl }: Pick<CredentialRow, 'acl'>, device: Named, tcpHost: string): string[] {
  const own = deviceRules(device, tcpHost);
  return acl.filter((rule) => !own.includes(rule));
}

/** The ACL of a device's authtoken after a change of the device; rules that an operator has added stay. */
export function changedRules(
  credential: Pick<CredentialRow, 'acl'>,
  before: Named,
  after: Named,
  tcpHost: string,
): string[] {
  return [...deviceRules(after, tcpHost), ...addedRules(credential, before, tcpHost)];
}
