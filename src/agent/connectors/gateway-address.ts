import { isIP } from 'node:net';

/** Address for agent sessions in ngrok's cloud. */
export const CLOUD_ADDRESS = 'connect.ngrok-agent.com:443';

/** A gateway's `host:port`, parsed. */
export interface GatewayAddress {
  /** A name or an address; IPv6 without brackets. */
  host: string;
  port: number;
  /** Server name for TLS (SNI); undefined for an IP address, which SNI does not support. */
  serverName: string | undefined;
}

/** Parses `host[:port]`; the default port is 443, and IPv6 addresses need brackets. */
export function parseGatewayAddress(address: string): GatewayAddress {
  const [, bracketed, plain = address, port = '443'] = /^(?:\[([^\]]+)\]|(.*?))(?::(\d+))?$/.exec(address) ?? [];
  const host = bracketed ?? plain;
  return { host, port: Number(port), serverName: isIP(host) ? undefined : host };
}
