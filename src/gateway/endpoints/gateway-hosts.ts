import { hostPort, isUnspecified } from '../../lib/ip-address.ts';

/** The name for agents. */
export function connectHost(baseDomain: string): string {
  return `connect.${baseDomain}`;
}

/** The name for clients of the management API. */
export function apiHost(baseDomain: string): string {
  return `api.${baseDomain}`;
}

/** A name that leads to the gateway: in DNS there are those below its domain, but below localhost not everywhere. */
export function tcpHost(baseDomain: string): string {
  return baseDomain.includes('.') ? `tcp.${baseDomain}` : baseDomain;
}

/**
 * Where agents are told to go; names below localhost are not known to every resolver.
 *
 * @param at `host` is what the gateway listens on; without a `sessionPort` agents come to the HTTPS port
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
