import type { DeviceRow } from '../store/devices.ts';

/** Where the API of a device is reachable. */
export function deviceDomain({ name, site }: Pick<DeviceRow, 'name' | 'site'>): string {
  return `agent-${name}.${site}`;
}

/**
 * The ACL of a device's authtoken: its own names below the site, and its TCP ports. After a rename it keeps the old
 * names until it joins again and knows the new one.
 */
export function deviceRules(
  { name, old_name, site, tcp_ports }: Pick<DeviceRow, 'name' | 'old_name' | 'site' | 'tcp_ports'>,
  tcpHost: string,
): string[] {
  return [
    `bind:*-${name}.${site}`,
    ...(old_name === null ? [] : [`bind:*-${old_name}.${site}`]),
    ...(tcp_ports === null ? [] : [`bind:${tcpHost}:${tcp_ports.first}-${tcp_ports.last}`]),
  ];
}
