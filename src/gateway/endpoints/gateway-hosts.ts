import { hostPort, isUnspecified } from '../../lib/network/ip-address.ts';

/** The host that agents connect to. */
export function connectHost(baseDomain: string): string {
  return `connect.${baseDomain}`;
}

export function apiHost(baseDomain: string): string {
  return `api.${baseDomain}`;
}

/** The host in the addresses of TCP endpoints. Below localhost it is the base domain: not every resolver knows subdomains. */
export function tcpHost(baseDomain: string): string {
  return baseDomain.includes('.') ? `tcp.${baseDomain}` : baseDomain;
}

/**
 * The address that agents are given. It is an IP address for localhost, whose subdomains not every resolver knows.
 *
 * @param at `host` is the listen address; without a `sessionPort` agents use the HTTPS port
 * @returns `host:port`
 */
export function sessionAddress(at: {
  host: string;
  baseDomain: string;
  sessionPort: number | null;
  httpsPort: number;
}): string {
  const isLocal = at.baseDomain === 'localhost' || at.baseDomain.endsWith('.localhost');
  const byAddress = !isUnspecified(at.host) && (isLocal || at.sessionPort !== null);
  const host = byAddress ? at.host : connectHost(at.baseDomain);
  return hostPort(host, at.sessionPort ?? at.httpsPort);
}
